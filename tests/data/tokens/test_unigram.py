import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.data.tokens import unigram

few = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 20), min_size=1, max_size=12)


def spellings(text: str, pieces: dict[str, float]) -> list[tuple[list[str], float]]:
    """Every way to spell a text, with its probability: the truth that the columns must find."""
    if not text:
        return [([], 1.0)]
    return [
        ([text[:n], *rest], pieces[text[:n]] * probability)
        for n in range(1, len(text) + 1)
        if text[:n] in pieces
        for rest, probability in spellings(text[n:], pieces)
    ]


@given(counts=few, seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_expected_counts_and_losses_are_those_over_all_spellings(counts, seed):
    letters = list("abc")
    runs, weights = unigram._chosen(counts, set(letters))
    columns, places = unigram._seeds(runs, weights, letters, 1000)
    strings = letters + [runs[r][b : b + n] for n, b, r in zip(*(part[3:] for part in places), strict=True)]
    drawn = random.Random(seed)
    probability = {piece: drawn.random() for piece in strings}
    table = np.array([probability[piece] for piece in strings])
    expected = dict.fromkeys(strings, 0.0)
    for run, weight in zip(runs, weights, strict=True):
        ways = spellings(run, probability)
        total = sum(chance for _, chance in ways)
        for way, chance in ways:
            for piece in way:
                expected[piece] += weight * chance / total
    actual = unigram._expected(columns, weights, table, len(strings))
    assert actual == pytest.approx([expected[piece] for piece in strings])
    loss = unigram._loss(unigram._within(columns, len(strings), *places), places[0], table, actual)
    for piece, value in zip(strings[3:], loss[3:], strict=True):
        other = sum(chance for way, chance in spellings(piece, probability) if len(way) > 1)
        assert value == pytest.approx(expected[piece] * (math.log(probability[piece]) - math.log(other)))


@given(counts=few)
@settings(max_examples=60, deadline=None)
def test_seeds_are_the_substrings_that_come_twice(counts):
    runs, weights = unigram._chosen(counts, set("abc"))
    _, places = unigram._seeds(runs, weights, list("abc"), 1000)
    results = {runs[r][b : b + n] for n, b, r in zip(*(part[3:] for part in places), strict=True)}
    often: dict[str, int] = {}
    for run, count in counts.items():
        for b in range(len(run)):
            for e in range(b + 2, len(run) + 1):
                often[run[b:e]] = often.get(run[b:e], 0) + count
    assert results == {piece for piece, count in often.items() if count >= 2}


def test_what_comes_together_becomes_a_piece():
    counts = {"▁the": 500, "▁then": 40, "▁token": 60, "▁tokens": 50, "▁tokenize": 20, "s": 3, "zq": 1}
    pieces = unigram.train(counts, "▁" + "".join(map(chr, range(97, 123))), 32)
    assert len(pieces) == 32
    assert pieces[0][0] == "▁the"
    assert "▁token" in dict(pieces)
    assert set("abcdefghijklmnopqrstuvwxyz▁") <= dict(pieces).keys()
    assert [score for _, score in pieces] == sorted((score for _, score in pieces), reverse=True)
    assert all(score < 0 for _, score in pieces)
    assert unigram.train(dict(reversed(counts.items())), "▁zyxwvutsrqponmlkjihgfedcba", 32) == pieces


def test_letters_stay_however_many_pieces_are_wanted_more():
    words = [first + middle + last for first in "bcdfg" for middle in "aeiou" for last in "lmnp"]
    pieces = dict(unigram.train(dict.fromkeys(words, 50), "abcdefghijklmnopqrstuvwxyz", 40))
    assert len(pieces) == 40
    assert set("abcdefghijklmnopqrstuvwxyz") <= pieces.keys()


def test_of_too_many_runs_the_commonest_are_taken(monkeypatch):
    monkeypatch.setattr(unigram, "CHARACTERS", 6)
    counts = {"xyz": 2, "abc": 9, "xzy": 3, "cab": 8}
    assert unigram._chosen(counts, set("abcxyz"))[0] == ["abc", "cab"]


@pytest.mark.parametrize("counts", [{}, {"\u4e00": 3}, {"a": 1}, {"a" * 1000: 2}])
def test_little_text_gives_the_alphabet(counts):
    pieces = dict(unigram.train(counts, "ab", 10))
    assert {"a", "b"} <= pieces.keys()
    assert len(pieces) <= 10
    assert all(map(math.isfinite, pieces.values()))


def test_an_alphabet_larger_than_the_size_is_kept():
    assert len(unigram.train({"abcdef": 5}, "abcdef", 3)) == 6


def test_digamma():
    """psi(1) = -gamma, psi(1/2) = -gamma - 2 log 2, psi(x + 1) = psi(x) + 1 / x."""
    gamma = 0.5772156649015329
    x = np.array([1.0, 0.5, 1e-3, 3.7, 1e6])
    result = unigram._digamma(x)
    assert result[:2] == pytest.approx([-gamma, -gamma - 2 * math.log(2)], abs=1e-11)
    assert unigram._digamma(x + 1) == pytest.approx(result + 1 / x, abs=1e-9)
    assert result[4] == pytest.approx(math.log(1e6) - 5e-7, abs=1e-12)
