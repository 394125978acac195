"""Intervals by drawing the rows again."""

import math

import numpy as np
import pytest

from clozeworks.metrics.bootstrap import intervals


def mean_of(values: np.ndarray):
    return lambda rows: {"mean": float(values[rows].mean())}


def test_they_hold_the_mean_about_as_often_as_they_say():
    draw, held = np.random.default_rng(0), 0
    for seed in range(60):
        low, high = intervals(mean_of(draw.normal(1.0, 2.0, 80)), 80, seed)["mean"]
        held += low <= 1.0 <= high
    assert 52 <= held <= 60


def test_their_width_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(0.0, 1.0, 250)
    low, high = intervals(mean_of(values), 250)["mean"]
    assert high - low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(250), rel=0.1)


def test_they_leave_out_as_much_below_as_above():
    numbers = iter(range(1000))
    assert intervals(lambda rows: {"a": next(numbers)}, 1)["a"] == pytest.approx((24.975, 974.025))
    numbers = iter(range(1000))
    assert intervals(lambda rows: {"a": next(numbers)}, 1, level=0.5)["a"] == pytest.approx((249.75, 749.25))


def test_the_same_seed_gives_the_same():
    values = np.random.default_rng(2).normal(size=30)
    assert intervals(mean_of(values), 30, 5) == intervals(mean_of(values), 30, 5) != intervals(mean_of(values), 30, 6)


def test_what_is_not_a_number_says_nothing():
    some = intervals(lambda rows: {"a": math.nan if rows[0] == 0 else 1.0, "b": math.nan}, 2)
    assert some["a"] == (1.0, 1.0)
    assert all(math.isnan(bound) for bound in some["b"])
    assert intervals(lambda rows: {"a": 1.0}, 0) == {}


def test_a_large_set_is_drawn_less_often():
    calls = []
    intervals(lambda rows: calls.append(len(rows)) or {}, 100_000)
    assert calls == [100_000] * 100
