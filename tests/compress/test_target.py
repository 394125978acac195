"""What a model shall become, in words and in figures."""

import math

import pytest

from clozeworks.compress.measure import Measured, Speed
from clozeworks.compress.quality import Quality
from clozeworks.compress.target import Target, check_target, parse_target
from clozeworks.core.errors import InputError
from clozeworks.metrics.statistics import Difference


def figures(size: int, speed: float, retained: float) -> Measured:
    quality = Quality("accuracy", retained, 1.0, retained, Difference(retained - 1, -1, 1))
    return Measured(size, 0, Speed(1000 * speed, 1.0, speed), quality)


def test_reads_what_is_asked_for():
    assert parse_target("size=10MB, quality=0.97") == Target(1e7, None, 0.97)
    assert parse_target("speed=4x") == parse_target("speed=4") == Target(speed=4.0)
    assert parse_target("size=1.5gb").bytes == 1.5e9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size=10MB,size=5MB", "asked for twice"),
        ("weight=3", "size, speed or quality"),
        ("", "size, speed or quality"),
        ("size", "a value is needed"),
        ("size=ten", "a number above 0"),
        ("size=0MB", "a number above 0"),
        ("size=10", "a number above 0"),
        ("speed=0.5x", "more than 1"),
        ("speed=1x", "more than 1"),
        ("speed=fast", "a number above 0"),
        ("quality=1.2", "1 at most"),
        ("quality=nan", "a number above 0"),
    ],
)
def test_what_contradicts_itself_is_refused(text: str, said: str):
    with pytest.raises(InputError, match=said):
        parse_target(text)


def test_says_by_how_much_it_is_missed():
    target = Target(bytes=1e6, speed=2.0, quality=0.9)
    assert target.shortfall(figures(2_000_000, 2.5, 0.95)) == {"size": pytest.approx(math.log(2))}
    assert target.shortfall(figures(500_000, 1.0, 0.45)).keys() == {"speed", "quality"}
    assert not target.shortfall(figures(1_000_000, 2.0, 0.9))


def test_gain_is_of_what_is_asked_for():
    before, after = figures(4_000_000, 1.0, 1.0), figures(2_000_000, 3.0, 0.9)
    assert Target(bytes=1e6).gain(before, after) == pytest.approx(math.log(2))
    assert Target(speed=2).gain(before, after) == pytest.approx(math.log(3))
    assert Target(quality=0.9).gain(before, after) == pytest.approx(math.log(6))


def test_what_the_model_is_already_is_refused():
    with pytest.raises(InputError, match="already"):
        check_target(Target(bytes=5e6), figures(4_000_000, 1.0, 1.0))
