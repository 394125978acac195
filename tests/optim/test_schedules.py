"""Rates at exact points, and what every schedule owes its steps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.optim.learning_rate import learning_rate, warmup_steps
from clozeworks.optim.schedules import Schedule, Word
from clozeworks.optim.settings import Polynomial, SlantedTriangular, Train, WarmupStableDecay
from clozeworks.recipes import recipe

EVERY: list[Word | Schedule] = [
    "linear",
    "cosine",
    "inverse_sqrt",
    "constant",
    "warmup_linear",
    Polynomial(),
    Polynomial(power=2.0, end=0.1),
    SlantedTriangular(),
    WarmupStableDecay(),
    WarmupStableDecay(decay=0.5),
]


def test_warmup_climbs_in_a_straight_line_from_the_first_step():
    train = Train(steps=100, learning_rate=0.5, warmup=10)
    assert [learning_rate(step, train) for step in (1, 2, 5, 10)] == [0.05, 0.1, 0.25, 0.5]


def test_linear_falls_evenly_and_would_be_zero_one_step_after_the_last():
    train = Train(steps=100, learning_rate=1.0, warmup=10)
    falls = [learning_rate(step, train) - learning_rate(step + 1, train) for step in range(10, 100)]
    assert falls == pytest.approx([1 / 91] * 90)
    assert learning_rate(100, train) == pytest.approx(1 / 91)
    assert learning_rate(101, train) == 0


def test_cosine_is_half_way_down_in_the_middle():
    train = Train(steps=109, learning_rate=1.0, warmup=10, schedule="cosine")
    assert learning_rate(60, train) == pytest.approx(0.5)
    assert learning_rate(35, train) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert 0 < learning_rate(109, train) < 1e-3


def test_inverse_sqrt_halves_at_four_times_the_warmup():
    train = Train(steps=1000, learning_rate=1.0, warmup=50, schedule="inverse_sqrt")
    assert [learning_rate(step, train) for step in (25, 50, 200, 450)] == pytest.approx([0.5, 1.0, 0.5, 1 / 3])


def test_constant_stays():
    train = Train(steps=10, learning_rate=0.3, warmup=2, schedule="constant")
    assert [learning_rate(step, train) for step in (1, 2, 3, 10)] == [0.15, 0.3, 0.3, 0.3]


def test_warmup_is_a_share_below_one_and_a_number_from_one_on():
    assert warmup_steps(Train(steps=1000, warmup=0.05)) == 50
    assert warmup_steps(Train(steps=1000, warmup=1)) == 1
    assert warmup_steps(Train(steps=1000, warmup=250)) == 250


def test_inverse_sqrt_is_that_of_the_transformer():
    """width^-0.5 min(s^-0.5, s P^-1.5)."""
    width, warm = 512, 4000
    train = Train(steps=100_000, learning_rate=(width * warm) ** -0.5, warmup=warm, schedule="inverse_sqrt")
    for step in (1, 100, 3999, 4000, 4001, 50_000):
        assert learning_rate(step, train) == pytest.approx(width**-0.5 * min(step**-0.5, step * warm**-1.5))


@pytest.mark.parametrize(
    ("width", "warm", "factor"), [(512, 4000, 1.0), (1024, 4000, 1.0), (256, 400, 2.0), (64, 0, 1)]
)
def test_noam_is_the_formula_of_the_paper(width: int, warm: int, factor: float):
    train = Train(steps=100_000, learning_rate=factor, warmup=warm, schedule="noam")
    peak = max(warm, 1)
    for step in (1, 2, 399, 400, 401, 3999, 4000, 4001, 100_000):
        wanted = factor * width**-0.5 * min(step**-0.5, step * peak**-1.5)
        assert learning_rate(step, train, width) == pytest.approx(wanted, rel=1e-12)
    assert max(range(1, 9000), key=lambda step: learning_rate(step, train, width)) == peak


def test_noam_has_the_course_of_inverse_sqrt():
    noam = Train(steps=500, learning_rate=1.0, warmup=50, schedule="noam")
    root = Train(steps=500, learning_rate=(256 * 50) ** -0.5, warmup=50, schedule="inverse_sqrt")
    for step in range(1, 501):
        assert learning_rate(step, noam, 256) == pytest.approx(learning_rate(step, root))


def test_warmup_linear_falls_during_the_warmup_too():
    """(x / w if x <= w else 1) (1 - x), at x = t / T for t = 1 ... T - 1 of the published T = 100."""
    train = Train(steps=99, learning_rate=2.0, warmup=20, schedule="warmup_linear")
    for step in range(1, 100):
        x, w = step / 100, 20 / 100
        assert learning_rate(step, train) == pytest.approx(2.0 * (x / w if x <= w else 1) * (1 - x))
    assert (
        max(learning_rate(step, train) for step in range(1, 100))
        == learning_rate(20, train)
        == pytest.approx(2.0 * 0.8)
    )


def test_polynomial_bends_and_ends_where_it_is_reported():
    train = Train(steps=109, learning_rate=1.0, warmup=10, schedule=Polynomial(power=2.0, end=0.2))
    assert [learning_rate(step, train) for step in (1, 5, 10)] == pytest.approx([0.1, 0.5, 1.0])
    assert learning_rate(60, train) == pytest.approx(0.2 + 0.8 * 0.25)
    assert learning_rate(110, train) == pytest.approx(0.2)


def test_polynomial_of_power_one_is_linear():
    line, power = (Train(steps=50, warmup=7, schedule=schedule) for schedule in ("linear", Polynomial()))
    assert [learning_rate(t, power) for t in range(1, 51)] == pytest.approx(
        [learning_rate(t, line) for t in range(1, 51)]
    )


def test_slanted_triangle_is_that_of_the_paper():
    train = Train(steps=200, learning_rate=0.01, warmup=0.5, schedule=SlantedTriangular())
    cut = 20
    for t in range(1, 201):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert learning_rate(t, train) == pytest.approx(0.01 * (1 + p * 31) / 32)
    assert learning_rate(20, train) == pytest.approx(0.01)
    assert learning_rate(200, train) == pytest.approx(0.01 / 32)


def test_stable_until_the_decay_then_down_by_a_root():
    train = Train(steps=100, learning_rate=1.0, warmup=10, schedule=WarmupStableDecay(decay=0.2))
    assert [learning_rate(step, train) for step in (5, 10, 50, 80)] == pytest.approx([0.5, 1.0, 1.0, 1.0])
    assert [learning_rate(step, train) for step in (81, 100)] == pytest.approx(
        [1 - (1 / 21) ** 0.5, 1 - (20 / 21) ** 0.5]
    )
    longer = Train(steps=200, learning_rate=1.0, warmup=10, schedule=WarmupStableDecay(decay=0.2))
    assert [learning_rate(n, longer) for n in range(1, 81)] == [learning_rate(n, train) for n in range(1, 81)]


@given(st.integers(1, 500), st.floats(0.01, 0.99), st.floats(1, 100))
def test_slanted_triangle_ends_at_its_ratio_wherever_the_cut_falls(steps: int, cut: float, ratio: float):
    train = Train(steps=steps, learning_rate=1.0, schedule=SlantedTriangular(cut, ratio))
    rates = [learning_rate(step, train) for step in range(1, steps + 1)]
    assert max(rates) == pytest.approx(1.0)
    assert min(rates) >= 1 / ratio - 1e-9
    if math.floor(cut * steps) >= 1:
        assert rates[-1] == pytest.approx(1 / ratio)


@pytest.mark.parametrize("schedule", EVERY, ids=str)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (2, 0.5), (10, 0), (10, 9), (10, 10), (10, 50)])
def test_no_step_is_wasted_and_none_exceeds_the_rate(schedule: Word | Schedule, steps: int, warmup: float):
    train = Train(steps=steps, learning_rate=0.1, warmup=warmup, schedule=schedule)
    rates = [learning_rate(step, train) for step in range(1, steps + 1)]
    assert min(rates) > 0
    assert max(rates) <= 0.1
    if warmup <= steps and schedule != "warmup_linear":
        assert max(rates) == 0.1


@given(st.sampled_from(EVERY), st.integers(1, 300), st.floats(0, 0.99))
def test_a_rate_climbs_once_and_then_falls(schedule: Word | Schedule, steps: int, warmup: float):
    train = Train(steps=steps, learning_rate=1.0, warmup=warmup, schedule=schedule)
    rates = [learning_rate(step, train) for step in range(1, steps + 1)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


@pytest.mark.parametrize("schedule", EVERY, ids=str)
def test_a_part_of_the_recipe(schedule: Word | Schedule):
    r = recipe("bert_tiny")
    r.train.schedule = schedule
    spec.check(r, r.name)
    assert spec.from_dict(spec.to_dict(r)) == r


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Polynomial(power=0)", r"schedule\.power = 0: a number above 0 is needed"),
        ("Polynomial(end=2)", r"schedule\.end = 2: a number in \[0, 1\] is needed"),
        ("SlantedTriangular(cut=1)", r"schedule\.cut = 1: a number in \(0, 1\) is needed"),
        ("SlantedTriangular(ratio=0.5)", r"schedule\.ratio = 0\.5: 1 or more is needed; 32 is usual$"),
        ("Slanted", r"choose one of Polynomial, SlantedTriangular, WarmupStableDecay$"),
        (
            "zigzag",
            r"'linear' or 'cosine' or 'inverse_sqrt' or 'constant' or 'warmup_linear' or 'noam' or Schedule is needed",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, message: str):
    r = recipe("bert_tiny")
    with pytest.raises(RecipeError, match=message):
        spec.set_path(r, "train.schedule", text)
        spec.check(r, r.name)
