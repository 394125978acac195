from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.vectors import column, words
from clozeworks.vectors.words import Gathering, Part, gathered

SENTENCES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=30)


def expected(sentences, min_count, most=None):
    counts = Counter(word for sentence in sentences for word in sentence)
    order = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
    order = order[:most]
    kept = [[word for word in sentence if word in order] for sentence in sentences]
    return order, [counts[word] for word in order], [sentence for sentence in kept if sentence]


@given(SENTENCES, st.integers(1, 4), st.sampled_from([None, 1, 3]))
@settings(deadline=None, max_examples=60)
def test_words_counts_and_stream_are_those_of_the_text(sentences, min_count, most):
    order, counts, kept = expected(sentences, min_count, most)
    if not order:
        with pytest.raises(InputError):
            gathered(sentences, min_count, most)
        return
    actual = gathered(iter(sentences), min_count, most)
    assert actual.words == order
    assert actual.counts.tolist() == counts
    assert list(actual.sentences()) == kept
    assert actual.read == sum(map(len, sentences))
    assert actual.ids.dtype == np.int32
    later = gathered(sentences).kept(min_count, most)
    assert (later.words, list(later.sentences()), later.read) == (actual.words, kept, actual.read)
    assert np.array_equal(later.ends, actual.ends)


@given(SENTENCES.filter(lambda sentences: any(sentences)), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_small_pieces_and_files_change_nothing(sentences, size):
    whole = gathered(sentences, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column, "PIECE", size)
        patch.setattr(words, "BATCH_WORDS", size)
        patch.setattr(words, "Column", lambda dtype, folder: column.Column(dtype, folder, 0))
        result = gathered(sentences, 1)
    assert result.words == whole.words
    assert np.array_equal(result.ids, whole.ids)
    assert np.array_equal(result.ends, whole.ends)


def test_distinct_words_are_bounded_and_the_common_ones_stay():
    rng = np.random.default_rng(0)
    gathering = Gathering(distinct=100)
    for batch in range(50):
        rare = [f"rare{batch}-{n}" for n in range(60)]
        common = [f"common{n}" for n in range(20)] * 3
        gathering.add(Part.of([list(rng.permutation(rare + common))]))
        assert len(gathering._number) <= 160
    result = gathering.finish("test", min_count=100)
    assert sorted(result.words) == sorted(f"common{n}" for n in range(20))
    assert set(result.counts.tolist()) == {150}
    assert len(result.ids) == 20 * 150


def test_nothing_left_is_reported():
    with pytest.raises(InputError, match=r"none of 2 words comes 5 times.*min_count of 3 or less"):
        gathered([["a", "b"], ["a", "a"]], min_count=5)
    with pytest.raises(InputError, match="no word in it"):
        gathered([])
    with pytest.raises(InputError, match="no word in it"):
        gathered([[], []])
    with pytest.raises(InputError, match="sentence 2 is one str"):
        gathered([["a"], "a b"])
    with pytest.raises(InputError, match="min_count"):
        gathered([["a"]], min_count=0)
    with pytest.raises(InputError, match="max_words"):
        gathered([["a"]], most=0)


def test_nothing_goes_means_the_same_object():
    result = gathered([["a", "b", "a"]])
    assert result.kept(1) is result
    assert result.kept(2).words == ["a"]
