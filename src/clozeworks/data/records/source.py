"""Records as they stand in what was given, before anything is known of their columns."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clozeworks.core.errors import InputError

LOOKED_AT = 100  # records whose fields are the names of columns: any one of them may lack some

Record = dict[str, Any]
Select = Callable[[Sequence[str], str], Sequence[str]]  # of the columns of a table, at a place, those to read


@dataclass(slots=True)
class Source:
    """Numbered records; `classes` has the names of classes that stand in a column as integers."""

    name: str
    records: Iterator[tuple[int, Any]]
    unit: str = "line"  # what the numbers count
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def place(self, number: int) -> str:
        """How a message names a record."""
        return f"{self.name}, {self.unit} {number}"

    def columns(self) -> list[str]:
        """The columns of the first records, which stay to be read."""
        first = list(itertools.islice(self.records, LOOKED_AT))
        self.records = itertools.chain(first, self.records)
        return list(dict.fromkeys(str(name) for _, record in first if isinstance(record, Mapping) for name in record))


def select_named(names: Sequence[str], where: str) -> list[str]:
    """All columns that have a name; two of one name are refused."""
    named = [name for name in names if name]
    refuse_doubles(named, named, where)
    return named


def refuse_doubles(read: Sequence[str], names: Sequence[str], where: object, what: str = "column") -> None:
    """Refuse a column to be read whose name two columns have."""
    doubled = [name for name in read if sum(name == other for other in names) > 1]
    if doubled:
        given = f"two {what}s are called {doubled[0]!r}"
        raise InputError(where, given, "one of each name is needed", "rename one")
