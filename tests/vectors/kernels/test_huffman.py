import heapq
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.vectors.kernels.huffman import tree_of


def ways(tree):
    for begin, end in zip(tree.starts[:-1], tree.starts[1:], strict=True):
        yield tree.points[begin:end], tree.bits[begin:end]


@pytest.mark.parametrize("ties", [False, True])
def test_codes_and_points_are_those_of_gensim(ties):
    gensim = pytest.importorskip("gensim.models")
    rng = np.random.default_rng(1)
    counts = np.array(sorted(rng.integers(1, 20 if ties else 10**7, 700).tolist(), reverse=True))
    model = gensim.Word2Vec(hs=1, negative=0, min_count=1, vector_size=2, sorted_vocab=0)
    model.build_vocab_from_freq({f"w{n}": int(count) for n, count in enumerate(counts)})
    for word, (points, bits) in enumerate(ways(tree_of(counts))):
        assert np.array_equal(points, model.wv.get_vecattr(word, "point"))
        assert np.array_equal(bits, model.wv.get_vecattr(word, "code"))


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40))
@settings(deadline=None, max_examples=50)
def test_the_code_is_optimal_and_no_code_begins_another(counts):
    tree = tree_of(np.array(counts))
    codes = ["".join(map(str, bits)) for _, bits in ways(tree)]
    heap = list(counts)
    heapq.heapify(heap)
    least = 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, both)
        least += both
    assert sum(map(math.prod, zip(counts, map(len, codes), strict=True))) == least
    ordered = sorted(codes)
    assert not any(after.startswith(before) for before, after in itertools.pairwise(ordered))
    assert tree.longest == max(map(len, codes))
    nodes: dict[str, int] = {}
    for points, bits in ways(tree):  # the node of a beginning of a code is always the same, the root's the last
        for at, point in enumerate(points):
            assert nodes.setdefault("".join(map(str, bits[:at])), int(point)) == point
    assert nodes[""] == len(counts) - 2
    assert sorted(nodes.values()) == list(range(len(counts) - 1))
