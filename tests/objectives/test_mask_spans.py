import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.spans import MaskSpans
from tests.objectives import mask_reference
from tests.objectives.layouts import (
    COUNTS,
    VOCABULARY,
    alike,
    chi_square,
    chosen_of,
    corrupt,
    flags,
    lay,
    layouts,
    runs,
)


@settings(deadline=None, max_examples=200)
@given(layouts, st.sampled_from([0.05, 0.15, 0.5, 0.9, 0.999]), st.integers(1, 12), st.integers(0, 9))
def test_the_budget_is_exact_and_at_most_one_word_is_cut(layout, rate, longest, seed):
    hidden = corrupt(MaskSpans(rate, longest=longest), lay(layout), seed)
    for pieces, result in zip(layout, flags(layout, hidden), strict=True):
        words = [word for piece in result for word in piece]
        assert sum(map(sum, words)) == math.ceil(rate * sum(map(sum, pieces)))
        cut = [word for word in words if any(word) and not all(word)]
        assert len(cut) <= 1
        assert all(word == sorted(word, reverse=True) for word in cut)  # cut from its first token on


@settings(deadline=None, max_examples=100)
@given(layouts, st.sampled_from([0.15, 0.6]), st.integers(0, 9))
def test_spans_are_the_runs_of_what_is_hidden(layout, rate, seed):
    hidden = corrupt(MaskSpans(rate), lay(layout), seed)
    assert hidden.span is not None
    assert hidden.span.dtype == np.int32
    assert np.array_equal(hidden.span >= 0, hidden.labels != -100)
    for at, (chosen, span) in enumerate(zip(chosen_of(hidden), np.split(hidden.span, hidden.first[1:-1]), strict=True)):
        spans = [(begin, end) for begin, end in hidden.spans(at) if span[begin:end].min() == span[begin:end].max() >= 0]
        assert [end - begin for begin, end in spans] == runs(chosen.tolist())
        expected, number = [], -1
        for place, each in enumerate(chosen.tolist()):
            number += each and not (place and chosen[place - 1])
            expected.append(number if each else -1)
        assert span.tolist() == expected


def test_the_length_of_a_span():
    """Geometric, renormalised on 1 .. 10."""
    lengths = MaskSpans().lengths(counter_rng.bits(counter_rng.fold(0, np.arange(200_000))) >> np.uint64(32))
    weights = 0.2 * 0.8 ** np.arange(10)
    assert chi_square(np.bincount(lengths, minlength=11)[1:], 200_000 * weights / weights.sum()) < 4
    assert lengths.mean() == pytest.approx(3.797, abs=0.025)
    assert (weights / weights.sum())[:3] == pytest.approx([0.2241, 0.1792, 0.1434], abs=5e-5)


def test_a_single_span_has_that_length():
    """In a long example with little to hide, the first span is seldom met by another."""
    hidden = corrupt(MaskSpans(most=10), lay([[[2] * 1000]], times=4000))
    first = hidden.span == 0 if hidden.span is not None else None
    assert first is not None
    # One span of 5 words or more meets the budget of 10 tokens by itself.
    alone = np.add.reduceat(first.astype(int), hidden.first[:-1]) == 10
    weights = 0.8 ** np.arange(10)
    assert alone.mean() == pytest.approx(weights[4:].sum() / weights.sum(), abs=0.03)


def test_the_anchor_is_uniform_over_tokens():
    """A word is met as often as it has tokens."""
    words = [4, 1, 2, 1]
    hidden = corrupt(MaskSpans(0.1, longest=1, rounding="nearest"), lay([[words]], times=20_000))  # one token of 8
    chosen = np.array(chosen_of(hidden))[:, 1:-1].sum(axis=0)
    assert chosen.tolist()[1:4] == [0, 0, 0]  # cut from the first token on
    assert chi_square(chosen[[0, 4, 5, 7]], 20_000 * np.array(words) / 8) < 4


def test_a_span_ends_with_its_piece():
    layout = [[[1] * 5, [1] * 5]] * 300
    hidden = corrupt(MaskSpans(0.5), lay(layout))
    assert hidden.span is not None
    for row, segment in zip(hidden.span.reshape(300, -1), hidden.segment.reshape(300, -1), strict=True):
        for number in range(row.max() + 1):
            assert len(set(segment[row == number].tolist())) == 1


def test_pieces_without_a_separator_part_spans_too():
    hidden = corrupt(MaskSpans(0.99), lay([[[1] * 5, [1] * 5]], bare=True, times=10))
    assert hidden.span is not None
    assert {tuple(row) for row in hidden.span.reshape(10, -1).tolist()} == {(0,) * 5 + (1,) * 5}
    neighbours = corrupt(MaskSpans(0.99), lay([[[1] * 5]], bare=True, times=10))
    assert neighbours.span is not None
    assert set(neighbours.span.tolist()) == {0}


def test_a_span_has_one_fate():
    hidden = corrupt(MaskSpans(), lay([[[1, 2] * 40]], times=3000))
    assert hidden.span is not None
    key = hidden.example * 1000 + hidden.span
    inside = hidden.span >= 0
    _, owner, size = np.unique(key[inside], return_inverse=True, return_counts=True)
    masked = np.bincount(owner, (hidden.tokens == VOCABULARY.mask)[inside])
    kept = np.bincount(owner, (hidden.tokens == hidden.labels)[inside])
    assert ((masked == 0) | (masked == size)).all()
    assert (masked == size).mean() == pytest.approx(0.8, abs=0.01)
    assert (kept == size).mean() == pytest.approx(0.1, abs=0.008)
    long = size > 3
    assert (kept[long] == size[long]).mean() == pytest.approx(0.1, abs=0.012)
    mixed = (masked == 0) & (kept < size)
    assert mixed.mean() == pytest.approx(0.1, abs=0.008)


def test_random_tokens_follow_the_corpus_one_by_one():
    how = MaskSpans(replace=Replace(0.0, 1.0, source="corpus", per="span"))
    hidden = corrupt(how, lay([[[1] * 126]], times=3000))
    inside = hidden.labels != -100
    drawn = np.bincount(hidden.tokens[inside], minlength=VOCABULARY.size)
    expected = inside.sum() * COUNTS / COUNTS.sum()
    assert drawn[:5].sum() == 0
    edges = np.arange(5, 1000, 5)
    assert chi_square(np.add.reduceat(drawn, edges), np.add.reduceat(expected, edges)) < 4
    assert hidden.span is not None
    same = (np.diff(hidden.tokens) == 0) & (np.diff(hidden.span) == 0) & inside[1:]
    assert same.mean() < 0.01  # neighbours in a span are not copies of one draw


@pytest.mark.parametrize("rate", [0.15, pytest.param(0.5, marks=pytest.mark.slow)])
def test_statistics_are_those_of_the_plain_algorithm(rate):
    rng = random.Random(2)
    words = rng.choices(range(1, 6), [60, 20, 10, 7, 3], k=70)
    ours = [example[0] for example in flags([[words]] * 5000, corrupt(MaskSpans(rate), lay([[words]], times=5000)))]
    plain = [mask_reference.spans(words, rate, 0.2, 10, rng) for _ in range(5000)]
    alike(*(np.array([np.concatenate(example) for example in each]) for each in (ours, plain)))
    alike(features(ours), features(plain))


def features(examples: list[list[list[bool]]]) -> np.ndarray:
    """Of each example: runs of words, whole words hidden, words cut, the longest run, single words."""
    out = []
    for words in examples:
        lengths = runs([word[0] for word in words])
        cut = sum(any(word) and not all(word) for word in words)
        out.append([len(lengths), sum(map(all, words)), cut, max(lengths), lengths.count(1)])
    return np.array(out, dtype=float)


def test_the_figures_of_the_published_masks():
    """Blocks of 510 tokens: 77 hidden (0.15098), runs of 3.95 words in the mean after merging and cutting."""
    rng = random.Random(3)
    layout = []
    for _ in range(400):
        words = rng.choices(range(1, 4), [80, 15, 5], k=600)
        while sum(words) > 510:
            words.pop()
        layout.append([words + [1] * (510 - sum(words))])
    hidden = corrupt(MaskSpans(), lay(layout))
    results = [example[0] for example in flags(layout, hidden)]
    assert {sum(map(sum, words)) for words in results} == {77}
    lengths = [length for words in results for length in runs([word[0] for word in words])]
    assert np.mean(lengths) == pytest.approx(3.95, abs=0.25)
