import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.segments import SegmentPair, SentenceOrder
from tests.toys import VOCABULARY, Text

texts = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=1, max_size=12)
keys = st.integers(0, 2**40).map(lambda n: counter_rng.fold(n))


@settings(deadline=None, max_examples=200)
@given(texts.filter(lambda documents: max(map(sum, documents)) > 1).map(Text), keys, st.integers(8, 80))
def test_both_sides_are_neighbours_and_the_label_tells_their_order(text, key, length):
    plan = SentenceOrder(length=length).plan(text, key)
    starts, ends, label = plan.starts.reshape(-1, 2), plan.ends.reshape(-1, 2), plan.fields["pair_label"]
    assert (ends > starts).all()
    assert (text.document_of(starts[:, 0]) == text.document_of(starts[:, 1])).all(), "a side of another document"
    early, late = np.where(label == 1, 1, 0), np.where(label == 1, 0, 1)
    each = np.arange(len(plan))
    seam = starts[each, late] - ends[each, early]
    assert (seam >= 0).all(), "a label that does not tell the order"
    assert (seam[plan.lengths < length] == 0).all(), "nothing was cut away, yet the sides are no neighbours"
    # what is missing between the sides was cut from them: no example lies in the gap
    begin = np.minimum(starts[:, 0], starts[:, 1])
    assert (np.diff(begin) > 0).all()
    assert (begin[1:] >= np.maximum(ends[:, 0], ends[:, 1])[:-1]).all(), "two examples overlap"


def test_half_are_swapped_whatever_their_length():
    text = Text.random(3000)
    plan = SentenceOrder(length=128).plan(text, counter_rng.fold(0))
    label, full = plan.fields["pair_label"], plan.lengths == 128
    for chosen in (full, ~full):
        error = 4 * 0.5 / chosen.sum() ** 0.5
        assert label[chosen].mean() == pytest.approx(0.5, abs=error)


def test_shortening_does_not_tell_the_order():
    text = Text([[50] * 30] * 400)
    plan = SentenceOrder(length=128, short=0.0).plan(text, counter_rng.fold(2))
    sizes, label = (plan.ends - plan.starts).reshape(-1, 2), plan.fields["pair_label"]
    first = [(sizes[label == value, 0] > sizes[label == value, 1]).mean() for value in (0, 1)]
    assert first[0] == pytest.approx(first[1], abs=0.05)


def test_a_sentence_alone_is_cut_in_the_middle():
    plan = SentenceOrder(length=64, short=0.0).plan(Text([[9], [20]]), counter_rng.fold(0))
    assert sorted(zip(plan.starts.tolist(), plan.ends.tolist(), strict=True)) == [(0, 5), (5, 9), (9, 19), (19, 29)]


def test_a_sentence_alone_looks_for_company():
    long, brief = SentenceOrder(length=64, short=0.0), SentenceOrder(length=64, short=1.0)
    reached = long.plan(Text([[61, 10, 61]]), counter_rng.fold(0))
    assert reached.ends[:2].max() > 61, "the target is reached, yet a second sentence is taken"
    assert len(long.plan(Text([[30, 20, 11]]), counter_rng.fold(0))) == 1
    for seed in range(50):
        plan = brief.plan(Text([[10] * 5]), counter_rng.fold(seed))
        assert np.isin(plan.starts, [0, 10, 20, 30, 40]).all(), "a sentence is cut that could have joined another"


def test_a_token_left_over_joins_the_chunk_before_it():
    plan = SentenceOrder(length=64, short=0.0).plan(Text([[40, 21, 1], [61, 1], [1]]), counter_rng.fold(0))
    assert plan.lengths.tolist() == [64, 64]  # 62 tokens each, of which one had to go
    assert (plan.starts.reshape(-1, 2).min(1) - [0, 62]).max() <= 1
    ends = [
        SentenceOrder(length=64, short=0.0).plan(Text([[40, 21, 1]]), counter_rng.fold(n)).ends.max() for n in range(20)
    ]
    assert set(ends) == {62}, "the longer side loses a token, not the one left over"


def test_text_without_any_order_is_refused():
    source = Source(Text([[1], [1]]), SentenceOrder(length=64), None, VOCABULARY, 0)
    with pytest.raises(InputError, match="no example"):
        source.epoch(0)


def test_chunks_are_those_of_segment_pair():
    """Where B is the rest of its chunk and nothing was cut away, both formats have the same stretch of text."""
    text = Text.random(200)
    key = counter_rng.fold(4)
    pairs, order = SegmentPair(length=512).plan(text, key), SentenceOrder(length=512).plan(text, key)
    chunks = lambda plan: set(zip(plan.starts.reshape(-1, 2).min(1), plan.ends.reshape(-1, 2).max(1), strict=True))  # noqa: E731
    following = (pairs.fields["pair_label"] == 0) & (pairs.lengths < 512)
    firsts = set(text.sentences[text.documents[:-1]].tolist())
    begins = {(int(a), int(b)) for a, b in zip(pairs.starts[::2][following], pairs.ends[1::2][following], strict=True)}
    lasts = set(text.sentences[text.documents[1:] - 1].tolist())  # a chunk that ends there takes one sentence more
    same = {chunk for chunk in begins if chunk[0] in firsts and chunk[1] not in lasts}
    assert len(same) > 50
    assert same <= chunks(order)
