"""Rows of Python objects, known by what they can do: lists of dicts, columns, frames and the package `datasets`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.tables.source import Source
from clozeworks.data.tables.table import Table

BATCH_ROWS = 256  # of a dataset read at once
NAME = "rows"  # of what has no file


def from_object(given: Any) -> Source:
    if isinstance(given, Table):
        lines = given.lines or range(1, len(given) + 1)
        return Source(given.name, zip(lines, given.rows, strict=True), given.unit if given.lines else "row")
    if _is_dataset(given):
        return Source("dataset", enumerate(_dataset_rows(given), 1), "row", class_names(given.features or {}))
    if hasattr(given, "iloc") and hasattr(given, "to_dict"):
        return Source("frame", enumerate(given.to_dict("records"), 1), "row")
    if isinstance(given, Mapping) and given and all(map(_is_dataset, given.values())):
        needed, todo = "one of its splits is needed", f"give dataset[{next(iter(given))!r}]"
        raise InputError("dataset", f"the splits {', '.join(map(str, given))}", needed, todo)
    if isinstance(given, Mapping):
        return Source(NAME, enumerate(_from_columns(given), 1), "row")
    if isinstance(given, bytes) or not hasattr(given, "__iter__"):
        needed = "a path, a list of dicts, a frame or a dataset is needed"
        raise InputError(NAME, f"one {type(given).__name__}", needed, 'give a list of rows, [{"text": ...}]')
    return Source(NAME, enumerate(given, 1), "row")


def _from_columns(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lengths = {name: len(column) if _is_column(column) else -1 for name, column in given.items()}
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        told = ", ".join(f"{name}: {size if size >= 0 else 'no list'}" for name, size in lengths.items())
        raise InputError(
            NAME, f"one dict with {told or 'nothing'}", "columns of one length are needed", "or give a list"
        )
    for cells in zip(*given.values(), strict=True):
        yield dict(zip(given, cells, strict=True))


def _is_column(value: Any) -> bool:
    return hasattr(value, "tolist") or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _is_dataset(given: Any) -> bool:
    return all(hasattr(given, name) for name in ("column_names", "features", "iter"))


def _dataset_rows(dataset: Any) -> Iterator[dict[str, Any]]:
    plain = dataset.with_format(None) if hasattr(dataset, "with_format") else dataset
    for batch in plain.iter(BATCH_ROWS):
        names = list(batch)
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(names, cells, strict=True))


def class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the classes that stand as integers, in a column or in its lists; of features as objects or as dicts."""
    found = {}
    for name, feature in features.items():
        if isinstance(feature, list) and feature:
            feature = feature[0]
        names = _part(feature, "names") or _part(_part(feature, "feature"), "names")
        if names:
            found[name] = list(names)
    return found


def _part(feature: Any, name: str) -> Any:
    return feature.get(name) if isinstance(feature, dict) else getattr(feature, name, None)
