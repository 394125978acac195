"""Rare tokens chosen more often."""

import dataclasses

import numpy as np
import pytest

from clozeworks.core import counter_rng, spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.objectives.mask.order import raced
from clozeworks.objectives.mask.tokens import MaskTokens
from tests.objectives.layouts import VOCABULARY, chosen_of, corrupt, lay

SPEED = np.array([1.0, 0.2, 3.0, 0.5, 1.0, 0.05])


def drawn(times: int, taken: int) -> np.ndarray:
    """[times, 6] bool: what our race takes first."""
    first = np.arange(times + 1) * len(SPEED)
    order = raced(first, np.tile(SPEED, times), counter_rng.fold(7, np.arange(times)))[:, :taken]
    chosen = np.zeros((times, len(SPEED)), dtype=bool)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen


@pytest.mark.parametrize("taken", [1, 2, 4])
def test_the_race_draws_without_replacement(taken):
    times, generator = 20_000, np.random.default_rng(0)
    share = SPEED / SPEED.sum()
    plain = np.zeros((times, len(SPEED)), dtype=bool)
    for row in plain:
        row[generator.choice(len(SPEED), taken, replace=False, p=share)] = True
    ours = drawn(times, taken)
    assert (ours.sum(1) == taken).all()
    for features in (lambda x: x, lambda x: (x[:, :, None] & x[:, None, :]).reshape(times, -1)):
        a, b = features(ours), features(plain)
        error = np.sqrt(a.var(0) / times + b.var(0) / times) + 1e-9
        assert np.abs((a.mean(0) - b.mean(0)) / error).max() < 4.5
    if taken == 1:
        assert ours.mean(0) == pytest.approx(share, abs=0.012)


def test_a_row_is_the_order_of_its_own_units():
    first = np.array([0, 3, 3, 8])
    order = raced(first, np.ones(8), counter_rng.fold(1, np.arange(3)))
    for row, count in zip(order, np.diff(first), strict=True):
        assert sorted(row[:count].tolist()) == list(range(count))


def test_rare_tokens_are_hidden_more_often_and_as_many():
    clean = lay([[[1] * 40]], times=2000)
    plain, rare = (corrupt(MaskTokens(rare=rare), clean) for rare in (0.0, 0.7))
    assert [each.sum() for each in chosen_of(rare)] == [each.sum() for each in chosen_of(plain)]
    counts = VOCABULARY.counts[clean.tokens[1:41]]
    share = np.array(chosen_of(rare))[:, 1:41].mean(0)
    assert np.corrcoef(np.log(counts), np.log(share))[0, 1] < -0.9
    flat = np.array(chosen_of(plain))[:, 1:41].mean(0)
    assert flat.max() < 1.3 * flat.mean() < share.max()


def test_an_example_draws_by_its_own_key():
    together = lay([[[1] * 30], [[1] * 7, [1] * 20], [[1] * 50]])
    keys = counter_rng.fold(3, np.arange(3))
    mask = MaskTokens(rare=0.7)
    all_of_them = mask.corrupt(together, keys, VOCABULARY)
    for at in range(3):
        begin, end = together.first[at], together.first[at + 1]
        cut = {
            name: getattr(together, name)[begin:end]
            for name in ("tokens", "segment", "special", "word_starts", "labels")
        }
        alone = dataclasses.replace(together, first=np.array([0, end - begin]), **cut)
        result = mask.corrupt(alone, keys[at : at + 1], VOCABULARY)
        assert np.array_equal(result.tokens, all_of_them.tokens[begin:end])
        assert np.array_equal(result.labels, all_of_them.labels[begin:end])


def test_what_it_needs():
    assert MaskTokens(rare=0.7).needs_counts
    assert not MaskTokens().needs_counts
    with pytest.raises(RecipeError, match=r"rare = -1: 0 or more"):
        spec.check(MaskTokens(rare=-1), "mask")
    clean = lay([[[1] * 9]])
    with pytest.raises(InputError, match="the token counts of the corpus are needed"):
        MaskTokens(rare=0.7).corrupt(
            clean, counter_rng.fold(0, np.arange(1)), dataclasses.replace(VOCABULARY, counts=None)
        )


def test_it_is_written_and_read():
    assert spec.to_dict(MaskTokens())["rare"] == 0.0
    assert spec.from_dict(spec.to_dict(MaskTokens(rare=0.7))) == MaskTokens(rare=0.7)
