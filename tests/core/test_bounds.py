"""A number is refused by the bound of its field, wherever it stands; and fields that are numbers have one."""

import dataclasses
import math

import pytest

from clozeworks.core import spec
from clozeworks.core.bounds import Bound, Count, Part, Positive, Rate, Share, find_bound, numbers_in
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec


@dataclasses.dataclass(slots=True)
class Wide(Spec):
    """A spec of numbers."""

    width: Count = 4
    rates: tuple[Rate, Rate] = (0.1, 0.2)
    most: Positive | None = None
    free: float = 0.0


@pytest.mark.parametrize(
    ("bound", "inside", "outside", "said"),
    [
        (Count, (1, 10**12), (0, -1), "1 or more"),
        (Positive, (1e-30, 1e30), (0.0, -1.0, math.inf, math.nan), "a number above 0"),
        (Rate, (0, 0.999), (1, -0.1, math.nan), "a number in [0, 1)"),
        (Share, (0, 1), (1.0001, -1e-9), "a number in [0, 1]"),
        (Part, (0.5,), (0, 1), "a number in (0, 1)"),
    ],
)
def test_an_interval_has_its_ends_or_not(bound, inside, outside, said: str):
    interval = find_bound(bound)
    assert interval is not None
    assert str(interval) == said
    assert all(map(interval.holds, inside))
    assert not any(map(interval.holds, outside))


def test_every_number_of_a_field_is_held_to_its_bound():
    spec.check(Wide(), "w")
    spec.check(Wide(most=3.0), "w")
    for more, said in (
        ({"width": 0}, r"w\.width = 0: 1 or more is needed; 4 is usual"),
        ({"rates": (0.1, 1.0)}, r"w\.rates\.1 = 1\.0: a number in \[0, 1\) is needed"),
        ({"most": math.inf}, r"w\.most = inf: a number above 0 is needed; None is usual"),
    ):
        with pytest.raises(RecipeError, match=said):
            spec.check(Wide(**more), "w")


def test_bounds_are_found_in_options_and_tuples():
    assert find_bound(Count | None) == Bound(1)
    assert find_bound(tuple[Rate, ...]) == Bound(0, 1, below=True)
    assert find_bound(int | None) is None
    assert list(numbers_in((1, (2.0, None), True, "3"), "at")) == [("at.0", 1), ("at.1.0", 2.0)]
