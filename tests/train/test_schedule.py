"""Rates at exact points, and what every schedule owes its steps."""

import math

import pytest

from clozeworks.train.schedule import rate, warmup_steps
from clozeworks.train.settings import Train


def test_warmup_climbs_in_a_straight_line_from_the_first_step():
    train = Train(steps=100, learning_rate=0.5, warmup=10)
    assert [rate(step, train) for step in (1, 2, 5, 10)] == [0.05, 0.1, 0.25, 0.5]


def test_linear_falls_evenly_and_would_be_zero_one_step_after_the_last():
    train = Train(steps=100, learning_rate=1.0, warmup=10)
    falls = [rate(step, train) - rate(step + 1, train) for step in range(10, 100)]
    assert falls == pytest.approx([1 / 91] * 90)
    assert rate(100, train) == pytest.approx(1 / 91)
    assert rate(101, train) == 0


def test_cosine_is_half_way_down_in_the_middle():
    train = Train(steps=109, learning_rate=1.0, warmup=10, schedule="cosine")
    assert rate(60, train) == pytest.approx(0.5)
    assert rate(35, train) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert 0 < rate(109, train) < 1e-3


def test_inverse_sqrt_halves_at_four_times_the_warmup():
    train = Train(steps=1000, learning_rate=1.0, warmup=50, schedule="inverse_sqrt")
    assert [rate(step, train) for step in (25, 50, 200, 450)] == pytest.approx([0.5, 1.0, 0.5, 1 / 3])


def test_constant_stays():
    train = Train(steps=10, learning_rate=0.3, warmup=2, schedule="constant")
    assert [rate(step, train) for step in (1, 2, 3, 10)] == [0.15, 0.3, 0.3, 0.3]


def test_warmup_is_a_share_below_one_and_a_number_from_one_on():
    assert warmup_steps(Train(steps=1000, warmup=0.05)) == 50
    assert warmup_steps(Train(steps=1000, warmup=1)) == 1
    assert warmup_steps(Train(steps=1000, warmup=250)) == 250


@pytest.mark.parametrize("schedule", ["linear", "cosine", "inverse_sqrt", "constant"])
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (2, 0.5), (10, 0), (10, 9), (10, 10), (10, 50)])
def test_no_step_is_wasted_and_none_exceeds_the_rate(schedule: str, steps: int, warmup: float):
    train = Train(steps=steps, learning_rate=0.1, warmup=warmup, schedule=schedule)  # pyright: ignore[reportArgumentType]
    rates = [rate(step, train) for step in range(1, steps + 1)]
    assert min(rates) > 0
    assert max(rates) <= 0.1
    if warmup <= steps:
        assert max(rates) == 0.1
