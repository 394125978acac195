import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.objectives.segments import SentencePair
from tests.toys import Text

texts = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=2, max_size=12).map(Text)
keys = st.integers(0, 2**40).map(lambda n: counter_rng.fold(n))


@settings(deadline=None)
@given(texts, keys, st.integers(8, 140))
def test_labels_are_right_by_construction(text, key, length):
    plan = SentencePair(length=length).plan(text, key)
    (a_start, b_start), (a_end, b_end) = plan.starts.reshape(-1, 2).T, plan.ends.reshape(-1, 2).T
    other = plan.fields["pair_label"] == 1
    assert (b_start[~other] == a_end[~other]).all(), "B is not the next sentence"
    assert (text.document_of(a_start) == text.document_of(b_start))[~other].all()
    assert (text.document_of(a_start) != text.document_of(b_start))[other].all()
    half = (length - 3) // 2
    for start, end in ((a_start, a_end), (b_start, b_end)):
        sentence = np.searchsorted(text.sentences, start, side="right") - 1
        whole = np.diff(text.sentences)[sentence]
        assert (end <= text.sentences[sentence + 1]).all(), "two sentences on one side"
        assert ((end - start == whole) | (whole > half)).all(), "a sentence that fits is cut"
        parts = -(-whole // half)
        assert (end - start >= whole // parts).all(), "the parts of a long sentence differ by more than a token"


def test_an_odd_last_sentence_gets_a_random_partner():
    text = Text([[10], [7], [5]])
    plan = SentencePair(length=64).plan(text, counter_rng.fold(1))
    assert plan.fields["pair_label"].tolist() == [1, 1, 1]
    assert plan.starts[::2].tolist() == [0, 10, 17]


def test_half_of_the_labels_are_next():
    text = Text([[9] * 200] * 200)
    label = SentencePair(length=64).plan(text, counter_rng.fold(2)).fields["pair_label"]
    assert label.mean() == pytest.approx(0.5, abs=0.01)


def test_the_random_sentence_is_any_of_the_other_documents():
    text = Text([[5, 6, 7, 8]] * 50)
    starts = np.concatenate(
        [
            plan.starts[1::2][plan.fields["pair_label"] == 1]
            for plan in (SentencePair(length=64).plan(text, counter_rng.fold(seed)) for seed in range(200))
        ]
    )
    share = np.bincount(np.searchsorted(text.sentences, starts), minlength=200) / len(starts)
    assert share.min() > 0.6 / 200
    assert share.max() < 1.5 / 200
