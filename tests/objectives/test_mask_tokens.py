import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.examples import assemble
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import FullSentences, SegmentPair
from tests.objectives.layouts import chi_square, chosen_of, corrupt, lay
from tests.toys import VOCABULARY, Text


def examples(corruption: MaskTokens, documents: int = 300, length: int = 128, epoch: int = 0):
    text = Text.random(documents)
    made = Source(text, SegmentPair(length=length), corruption, VOCABULARY, seed=0).epoch(epoch)
    index = np.arange(len(made.plan))
    clean = assemble(made.plan, index, text.take, VOCABULARY)
    return clean, made.examples(index)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), min_size=2, max_size=8),
    st.floats(0.01, 0.9),
    st.sampled_from(["nearest", "random"]),
    st.none() | st.integers(1, 10),
)
def test_nothing_is_lost_invented_or_mislabelled(lengths, rate, rounding, most):
    text = Text(lengths)
    source = Source(text, FullSentences(length=64), MaskTokens(rate, rounding, most), VOCABULARY, 3)
    made = source.epoch(0)
    index = np.arange(len(made.plan))
    clean, hidden = assemble(made.plan, index, text.take, VOCABULARY), made.examples(index)
    chosen = hidden.labels != -100
    assert np.array_equal(hidden.tokens[~chosen], clean.tokens[~chosen])
    assert np.array_equal(hidden.labels[chosen], clean.tokens[chosen])
    assert not (chosen & clean.special).any()
    counts = np.add.reduceat(chosen.astype(int), clean.first[:-1])
    available = np.add.reduceat((~clean.special).astype(int), clean.first[:-1])
    low, high = np.floor(rate * clean.lengths), np.ceil(rate * clean.lengths)
    limit = np.minimum(available, most or 10**6)
    assert (counts >= np.minimum(np.maximum(low, 1), limit)).all()
    assert (counts <= np.minimum(np.maximum(high, 1), limit)).all()


def test_the_count_is_exact_and_the_shares_are_80_10_10():
    clean, hidden = examples(MaskTokens())
    chosen = hidden.labels != -100
    counts = np.add.reduceat(chosen.astype(int), clean.first[:-1])
    assert np.array_equal(counts, np.maximum(1, [round(0.15 * n) for n in clean.lengths.tolist()]))
    masked = hidden.tokens[chosen] == VOCABULARY.mask
    kept = hidden.tokens[chosen] == hidden.labels[chosen]
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    assert kept.mean() == pytest.approx(0.1, abs=0.008)
    random = hidden.tokens[chosen & (hidden.tokens != VOCABULARY.mask) & (hidden.tokens != clean.tokens)]
    assert len(random) / chosen.sum() == pytest.approx(0.1, abs=0.008)
    assert 0.3 < np.mean(random) / VOCABULARY.size < 0.7


def test_every_place_is_chosen_alike():
    _, hidden = examples(MaskTokens(), documents=600)
    position = hidden.position[hidden.labels != -100]
    counts = np.histogram(position, [1, 21, 41, 61])[0]
    assert counts.min() / counts.max() > 0.9


def test_every_choice_of_so_many_is_equally_likely():
    hidden = corrupt(MaskTokens(0.3), lay([[[1] * 5]], times=20_000))  # 2 of 5 tokens
    numbers = np.array(chosen_of(hidden))[:, 1:-1] @ (1 << np.arange(5))
    result, counts = np.unique(numbers, return_counts=True)
    assert len(result) == 10
    assert chi_square(counts, np.full(10, 2000.0)) < 4


def test_probabilistic_rounding_has_the_exact_mean():
    clean, hidden = examples(MaskTokens(rounding="random"), documents=600)
    share = (hidden.labels != -100).sum() / clean.lengths.sum()
    assert share == pytest.approx(0.15, abs=5e-4)


@pytest.mark.parametrize("source", ["vocabulary", "ordinary"])
def test_random_replacements_follow_the_paper(source):
    how = Replace(mask=0.0, random=1.0, source=source)
    tokens = np.full(100_000, 500, dtype=np.int32)
    drawn = how.draw(tokens, counter_rng.fold(1, np.arange(100_000)), VOCABULARY)
    assert (drawn < 5).any() == (source == "vocabulary")
    assert len(np.unique(drawn)) == (1000 if source == "vocabulary" else 995)


def test_a_new_mask_every_epoch_the_same_within_one():
    text = Text.random(60)
    source = Source(text, FullSentences(length=64), MaskTokens(), VOCABULARY, 0)
    index = np.arange(len(source.epoch(0).plan))
    first, again, other = (source.epoch(n).examples(index) for n in (0, 0, 1))
    assert np.array_equal(first.labels, again.labels)
    assert np.array_equal(first.tokens, again.tokens)
    assert not np.array_equal(first.labels, other.labels)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=20))
def test_an_example_does_not_depend_on_its_company(chosen):
    source = Source(Text.random(100), SegmentPair(length=64), MaskTokens(), VOCABULARY, 0)
    epoch = source.epoch(2)
    together = epoch.examples(np.array(chosen), sentences=True)
    for at, number in enumerate(chosen):
        alone = epoch.examples(np.array([number]), sentences=True)
        begin, end = together.first[at], together.first[at + 1]
        for field in dataclasses.fields(alone):
            if field.name not in ("first", "fields") and getattr(alone, field.name) is not None:
                assert np.array_equal(getattr(together, field.name)[begin:end], getattr(alone, field.name)), field.name
        assert together.fields["pair_label"][at] == alone.fields["pair_label"][0]


def test_sentence_starts_are_those_of_the_corpus():
    text = Text.random(40)
    source = Source(text, FullSentences(length=128), None, VOCABULARY, 0)
    epoch = source.epoch(0)
    every = epoch.examples(np.arange(len(epoch.plan)), sentences=True)
    assert every.sentence_starts is not None
    marks = every.sentence_starts[~every.special]
    assert np.array_equal(np.flatnonzero(marks), text.sentences[:-1])
