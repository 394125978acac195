"""Numbers that a field of a spec may have, said once, where its type is said: `dropout: Rate = 0.1`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args


@dataclass(frozen=True, slots=True)
class Bound:
    """An interval of finite numbers; its ends belong to it unless `above` or `below` says otherwise."""

    least: float
    most: float = math.inf
    above: bool = False  # numbers are above `least`
    below: bool = False  # numbers are below `most`

    def holds(self, value: float) -> bool:
        """Whether a number is finite and in the interval."""
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return math.isfinite(value) and low and high

    def describe(self, value: float) -> str:
        """What a number that it does not hold should have been."""
        if self.most - self.least > 1 and self.most < value < math.inf:
            return f"at most {self.most:,}"
        return str(self)

    def __str__(self) -> str:
        if self.most - self.least > 1:
            return f"a number above {self.least:g}" if self.above else f"{self.least:g} or more"
        return f"a number in {'(' if self.above else '['}{self.least:g}, {self.most:g}{')' if self.below else ']'}"


LARGEST = (1 << 31) - 1  # far beyond any machine's sizes, and whole in every integer of every library
GREATEST = 10**12  # of numbers that are not sizes
LAST_SEED = (1 << 63) - 1
MOST_PROCESSES = 1024  # on one machine: a slip of the pen must not start a million
MOST_TOKENS = 1 << 24  # of a step: four times the largest batches of this family
Count = Annotated[int, Bound(1, LARGEST)]
Tokens = Annotated[int, Bound(1, MOST_TOKENS)]
Natural = Annotated[int, Bound(0, LARGEST)]
Seed = Annotated[int, Bound(0, LAST_SEED)]
Processes = Annotated[int, Bound(1, MOST_PROCESSES)]
Finite = Annotated[float, Bound(-GREATEST, GREATEST)]
Positive = Annotated[float, Bound(0, GREATEST, above=True)]
NonNegative = Annotated[float, Bound(0, GREATEST)]
Rate = Annotated[float, Bound(0, 1, below=True)]  # at which something is dropped: not all of it
Share = Annotated[float, Bound(0, 1)]
Part = Annotated[float, Bound(0, 1, above=True, below=True)]  # some, and not all


def find_bound(annotation: Any) -> Bound | None:
    """The bound in an annotation, also that of one option or of the numbers in a tuple."""
    metadata = getattr(annotation, "__metadata__", ())
    bounds = [each for each in metadata if isinstance(each, Bound)]
    bounds += [bound for each in get_args(annotation) if (bound := find_bound(each)) is not None]
    return bounds[0] if bounds else None


def numbers_in(value: object, path: str) -> Iterator[tuple[str, float]]:
    """The numbers that a field holds, by itself or in tuples, each with its path."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from numbers_in(item, f"{path}.{index}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value
