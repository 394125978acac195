import dataclasses

import numpy as np
import pytest

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.objectives.mask.replace import Replace
from tests.objectives.layouts import COUNTS, VOCABULARY, chi_square

TOKENS = np.full(200_000, 500, dtype=np.int32)
BITS = counter_rng.bits(counter_rng.fold(7, np.arange(len(TOKENS))))


def test_the_three_fates():
    drawn = Replace(0.7, 0.2).draw(TOKENS, BITS, VOCABULARY)
    shares = [(drawn == 4).mean(), (drawn == 500).mean()]
    assert shares == pytest.approx([0.7 + 0.2 / 1000, 0.1 + 0.2 / 1000], abs=0.005)
    assert drawn.dtype == np.int32
    random = drawn[(drawn != 4) & (drawn != 500)]
    tenths = np.bincount(random // 100, minlength=10)
    assert chi_square(tenths, len(random) * np.array([99, *[100] * 4, 99, *[100] * 4]) / 998) < 4


@pytest.mark.parametrize(("mask", "random", "value"), [(1.0, 0.0, 4), (0.0, 0.0, 500)])
def test_the_ends(mask, random, value):
    assert set(Replace(mask, random).draw(TOKENS, BITS, VOCABULARY).tolist()) == {value}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("vocabulary", np.ones(1000)),
        ("ordinary", np.append(np.zeros(5), np.ones(995))),
        ("corpus", COUNTS),
    ],
)
def test_where_random_tokens_come_from(source, expected):
    drawn = np.bincount(Replace(0.0, 1.0, source).draw(TOKENS, BITS, VOCABULARY), minlength=1000)
    assert drawn[expected == 0].sum() == 0
    possible = np.flatnonzero(expected)
    groups = np.arange(0, len(possible), 5)
    shares = np.add.reduceat(expected[possible], groups) / expected.sum()
    assert chi_square(np.add.reduceat(drawn[possible], groups), shares * len(TOKENS)) < 4


def test_two_corpora_are_told_apart():
    how = Replace(0.0, 1.0, "corpus")
    for token in (7, 9, 7):
        counts = np.zeros(1000, dtype=np.int64)
        counts[token] = 3
        drawn = how.draw(TOKENS[:50], BITS[:50], dataclasses.replace(VOCABULARY, counts=counts))
        assert set(drawn.tolist()) == {token}


@pytest.mark.parametrize("counts", [None, np.zeros(1000, dtype=np.int64)])
def test_a_corpus_without_counts_is_refused(counts):
    with pytest.raises(InputError, match="counts of the corpus are needed"):
        Replace(source="corpus").draw(TOKENS, BITS, dataclasses.replace(VOCABULARY, counts=counts))


def test_followers_share_their_leader_s_fate():
    leader = np.repeat(np.arange(0, len(TOKENS), 4), 4)
    drawn = Replace(source="ordinary").draw(TOKENS, BITS, VOCABULARY, leader).reshape(-1, 4)
    masked = drawn == 4
    assert (masked.all(axis=1) == masked.any(axis=1)).all()
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    random = drawn[~masked[:, 0] & (drawn != 500).any(axis=1)]
    assert (random[:, 0] == random[:, 1]).mean() < 0.01
