"""Records of Python objects, known by what they can do: lists of dicts, columns, frames and the package `datasets`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.records.datasets import class_names, is_dataset, read_dataset
from clozeworks.data.records.source import Record, Source
from clozeworks.data.tables.table import Table

NAME = "rows"  # of what has no file


def read_object(given: Any) -> Source:
    """The records of a Table, a dataset, a frame, a dict of columns, or anything that gives one after the other."""
    if isinstance(given, Table):
        lines = given.lines or range(1, len(given) + 1)
        return Source(given.name, zip(lines, given.rows, strict=True), given.unit if given.lines else "row")
    if is_dataset(given):
        return Source("dataset", enumerate(read_dataset(given), 1), "row", class_names(given.features or {}))
    if hasattr(given, "iloc") and hasattr(given, "to_dict"):
        return Source("frame", enumerate(given.to_dict("records"), 1), "row")
    if isinstance(given, Mapping) and given and all(map(is_dataset, given.values())):
        needed, todo = "one of its splits is needed", f"give dataset[{next(iter(given))!r}]"
        raise InputError("dataset", f"the splits {', '.join(map(str, given))}", needed, todo)
    if isinstance(given, Mapping):
        return Source(NAME, enumerate(_read_columns(given), 1), "row")
    if isinstance(given, bytes) or not hasattr(given, "__iter__"):
        needed = "a path, a list of dicts, a frame or a dataset is needed"
        raise InputError(NAME, f"one {type(given).__name__}", needed, 'give a list of rows, [{"text": ...}]')
    return Source(NAME, enumerate(given, 1), "row")


def _read_columns(given: Mapping[str, Any]) -> Iterator[Record]:
    lengths = {name: len(column) if _is_column(column) else -1 for name, column in given.items()}
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        sizes = ", ".join(f"{name}: {size if size >= 0 else 'no list'}" for name, size in lengths.items())
        needed = "columns of one length are needed"
        raise InputError(NAME, f"one dict with {sizes or 'nothing'}", needed, "or give a list")
    for cells in zip(*given.values(), strict=True):
        yield dict(zip(given, cells, strict=True))


def _is_column(value: Any) -> bool:
    return hasattr(value, "tolist") or (isinstance(value, Sequence) and not isinstance(value, str | bytes))
