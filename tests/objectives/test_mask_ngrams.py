import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.mask.whole_words import MaskWholeWords
from tests.objectives import mask_reference
from tests.objectives.layouts import VOCABULARY, alike, budget_of, chi_square, corrupt, flags, lay, layouts, runs


@settings(deadline=None, max_examples=200)
@given(layouts, st.sampled_from([0.05, 0.15, 0.5, 0.9]), st.integers(1, 5), st.integers(0, 9))
def test_words_are_hidden_whole_within_the_budget(layout, rate, longest, seed):
    hidden = corrupt(MaskNgrams(rate, longest=longest), lay(layout), seed)
    for pieces, result in zip(layout, flags(layout, hidden), strict=True):
        words = [word for piece in result for word in piece]
        assert all(all(word) or not any(word) for word in words)
        taken, passed = [len(w) for w in words if all(w)], [len(w) for w in words if not any(w)]
        assert taken or not words
        left = budget_of(pieces, rate) - sum(taken)
        if left < 0:
            assert taken == [min(taken + passed)]
        elif longest == 1:  # whole words: nothing that fits is passed over
            assert all(size > left for size in passed if left)


def test_lengths_are_inverse_to_their_number():
    """Three tokens to hide: the first run has n words, what is left decides the pattern."""
    examples, words = 4000, 1500
    hidden = corrupt(MaskNgrams(most=3), lay([[[1] * words]], times=examples))
    patterns = [tuple(sorted(runs((part != -100).tolist()))) for part in hidden.labels.reshape(examples, -1)]
    one, two, three = 6 / 11, 3 / 11, 2 / 11
    expected = {(3,): three, (1, 2): two + one * (two + three), (1, 1, 1): one * one}
    counts = np.array([patterns.count(pattern) for pattern in expected])
    assert chi_square(counts, examples * np.array(list(expected.values()))) < 4


def test_the_longest_run_of_one_proposal():
    """Runs are at most `longest` unless two touch: with one proposal's worth of budget they never do."""
    hidden = corrupt(MaskNgrams(longest=5, most=5), lay([[[1] * 400]], times=3000))
    lengths = [max(runs((part != -100).tolist())) for part in hidden.labels.reshape(3000, -1)]
    share = np.bincount(lengths, minlength=6)[5] / 3000
    assert share == pytest.approx((1 / 5) / sum(1 / n for n in range(1, 6)), abs=0.02)


def test_a_run_ends_with_its_piece():
    """Pieces of one word: every run is one word, though n is 1 in only 6 of 11."""
    layout = [[[2], [2], [2], [2]]] * 500
    result = flags(layout, corrupt(MaskNgrams(0.3), lay(layout)))  # 4 of 13 tokens
    assert {sum(all(piece[0]) for piece in example) for example in result} == {2}
    first = np.array([[all(piece[0]) for piece in example] for example in result])
    together = (first[:, :-1] & first[:, 1:]).any(axis=1).mean()
    assert together == pytest.approx(0.5, abs=0.08)  # any two of four pieces: 3 of 6 pairs are neighbours


def test_runs_of_one_word_are_whole_words():
    clean = lay([[[1, 2, 3, 1, 5], [2, 1, 1, 4]]], times=50)
    assert np.array_equal(corrupt(MaskNgrams(longest=1), clean).tokens, corrupt(MaskWholeWords(), clean).tokens)


def test_each_token_draws_its_own_replacement():
    hidden = corrupt(MaskNgrams(), lay([[[2] * 60]], times=2000))
    chosen = hidden.labels != -100
    masked = (hidden.tokens == VOCABULARY.mask)[chosen].reshape(-1, 2)
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    assert masked.all(axis=1).mean() == pytest.approx(0.64, abs=0.015)


@pytest.mark.parametrize("rate", [0.15, pytest.param(0.6, marks=pytest.mark.slow)])
def test_statistics_are_those_of_the_plain_algorithm(rate):
    rng = random.Random(1)
    words = rng.choices(range(1, 6), [60, 20, 10, 7, 3], k=70)
    budget = budget_of([words], rate)
    ours = [example[0] for example in flags([[words]] * 6000, corrupt(MaskNgrams(rate), lay([[words]], times=6000)))]
    plain = [mask_reference.ngrams(words, budget, 3, rng) for _ in range(6000)]
    alike(*(np.array([np.concatenate(example) for example in each]) for each in (ours, plain)))
    alike(features(ours), features(plain))


def features(examples: list[list[list[bool]]]) -> np.ndarray:
    """Of each example: tokens and runs hidden, and runs of one, two and three words."""
    out = []
    for words in examples:
        lengths = runs([word[0] for word in words])
        out.append([sum(map(sum, words)), len(lengths), *(lengths.count(n) for n in (1, 2, 3))])
    return np.array(out, dtype=float)
