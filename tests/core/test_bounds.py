"""A number is refused by the bound of its field, wherever it stands; and fields that are numbers have one."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from clozeworks.core import spec
from clozeworks.core.bounds import Bound, Count, Part, Positive, Rate, Share, find_bound, numbers_in
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.recipes import named


@dataclasses.dataclass(slots=True)
class Wide(Spec):
    """A spec of numbers."""

    width: Count = 4
    rates: tuple[Rate, Rate] = (0.1, 0.2)
    most: Positive | None = None
    free: float = 0.0


@pytest.mark.parametrize(
    ("bound", "inside", "outside", "message"),
    [
        (Count, (1, 2**31 - 1), (0, -1, 2**31, 1e400), "1 or more"),
        (Positive, (1e-30, 1e12), (0.0, -1.0, math.inf, math.nan), "a number above 0"),
        (Rate, (0, 0.999), (1, -0.1, math.nan), "a number in [0, 1)"),
        (Share, (0, 1), (1.0001, -1e-9), "a number in [0, 1]"),
        (Part, (0.5,), (0, 1), "a number in (0, 1)"),
    ],
)
def test_an_interval_has_its_ends_or_not(bound, inside, outside, message: str):
    interval = find_bound(bound)
    assert interval is not None
    assert str(interval) == message
    assert all(map(interval.holds, inside))
    assert not any(map(interval.holds, outside))


def test_every_number_of_a_field_is_held_to_its_bound():
    spec.check(Wide(), "w")
    spec.check(Wide(most=3.0), "w")
    for more, message in (
        ({"width": 0}, r"w\.width = 0: 1 or more is needed; 4 is usual"),
        ({"rates": (0.1, 1.0)}, r"w\.rates\.1 = 1\.0: a number in \[0, 1\) is needed"),
        ({"width": 10**12}, r"w\.width = 1000000000000: at most 2,147,483,647 is needed"),
        ({"most": math.inf}, r"w\.most = inf: a number above 0 is needed; None is usual"),
    ):
        with pytest.raises(RecipeError, match=message):
            spec.check(Wide(**more), "w")


def is_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(is_number, get_args(annotation)))


def test_every_number_of_every_part_has_a_bound():
    """Whoever adds a field says which numbers it may have; a number beyond them is refused in any recipe."""
    for name, part in spec.known_parts().items():
        for field, annotation in spec.fields_of(part).items():
            assert not is_number(annotation) or field in spec.bounds_of(part), f"{name}.{field}"


def recipe_numbers() -> Iterator[tuple[str, str]]:
    """Every numeric field that a recipe has somewhere: one recipe that has it, and its path there."""
    seen = set()
    for name, make in named().items():
        for path, part in spec.walk(make()):
            for field in spec.bounds_of(type(part)):
                value = getattr(part, field)
                if (type(part), field) not in seen and isinstance(value, (int, float)):
                    seen.add((type(part), field))
                    yield name, spec.join(path, field)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e400, -(10**30), 10**30])
def test_senseless_numbers_are_refused_wherever_they_stand(value: float):
    fields = list(recipe_numbers())
    assert len(fields) > 60
    for name, path in fields:
        recipe = named()[name]()
        parent = dict(spec.walk(recipe))[path.rpartition(".")[0]]
        setattr(parent, path.rpartition(".")[2], value)
        with pytest.raises(RecipeError, match=path.rpartition(".")[2]):
            spec.check(recipe, name)


def test_bounds_are_found_in_options_and_tuples():
    assert find_bound(Count | None) == find_bound(Count)
    assert find_bound(tuple[Rate, ...]) == Bound(0, 1, below=True)
    assert find_bound(int | None) is None
    assert list(numbers_in((1, (2.0, None), True, "3"), "at")) == [("at.0", 1), ("at.1.0", 2.0)]
