"""Rows as they stand in what was given, before anything is known of their columns."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOOKED_AT = 100  # rows that tell the names of columns: any one of them may lack some


@dataclass(slots=True)
class Source:
    """Numbered rows; `classes` has the names of classes that stand in a column as integers."""

    name: str
    rows: Iterator[tuple[int, Any]]
    unit: str = "line"  # what the numbers count
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def place(self, number: int) -> str:
        return f"{self.name}, {self.unit} {number}"

    def names(self) -> list[str]:
        """The columns of the first rows, which stay to be read."""
        first = list(itertools.islice(self.rows, LOOKED_AT))
        self.rows = itertools.chain(first, self.rows)
        return list(dict.fromkeys(str(name) for _, row in first if isinstance(row, Mapping) for name in row))
