"""Documents of Python objects: texts, rows, Documents, and the datasets of the package `datasets`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.datasets import is_dataset, read_dataset
from clozeworks.data.records.source import Source
from clozeworks.data.text.convert import SPANS, convert_records, select_fields
from clozeworks.data.text.documents import Document, Reading


class Items:
    """The documents of an iterable. One that gives its items only once is kept in `spool`, as JSON lines."""

    def __init__(self, source: Any, reading: Reading, spool: Path | None):
        self._reading = reading
        self._spool: Path | None = None
        datasets = _datasets(source)
        self.name = "documents" if datasets is None else "dataset"
        if datasets is not None:
            source = DatasetRows(datasets, reading)
        elif isinstance(source, str | bytes | Mapping) or hasattr(source, "iloc") or not hasattr(source, "__iter__"):
            needed = "paths, or an iterable of texts, rows or Documents, is needed"
            todo = 'give a list of rows, such as frame.to_dict("records")'
            raise InputError("source", f"one {type(source).__name__}", needed, todo)
        self._items: Iterable[Any] = source
        if source.once if isinstance(source, DatasetRows) else iter(source) is source:
            if spool is None:
                raise InputError(self.name, "nowhere to keep them", "documents are read twice", "give a list")
            self._spool, self._items = spool, ()
            self.total = _keep(source, spool)
        else:
            self.total = source.total if isinstance(source, DatasetRows) else sum(map(_size, source))

    def documents(self, counts: Counts) -> Iterator[Document]:
        items = self._items if self._spool is None else _kept(self._spool)
        return convert_records(Source(self.name, self._number(items, counts), "row"), self._reading, counts)

    def _number(self, items: Iterable[Any], counts: Counts) -> Iterator[tuple[int, Any]]:
        start, field = counts.bytes, self._reading.field
        for number, item in enumerate(items, 1):
            yield number, {field: item} if isinstance(item, str) else item
            counts.bytes += _size(item)
            if isinstance(items, DatasetRows):
                counts.bytes = start + items.total * number // max(1, items.count)

    def identity(self) -> None:
        return None

    def sources(self) -> list[dict[str, Any]]:
        return [{"path": self.name, "bytes": self.total}]


class DatasetRows:
    """The rows of datasets, one after the other, with the columns that are read only.

    `once`: at least one of them streams, perhaps from afar, and is better read once. `total` is the size of the text.
    """

    def __init__(self, datasets: list[Any], reading: Reading):
        self._parts: list[Any] = []
        for dataset in datasets:
            if dataset.column_names is not None:  # one that streams may not know them
                read = select_fields(dataset.column_names, "dataset", reading, "column")
                dataset = dataset.select_columns(list(read))
            self._parts.append(dataset)
        self.once = not all(hasattr(part, "__len__") for part in self._parts)
        self.count = 0 if self.once else sum(map(len, self._parts))
        self.total = 0 if self.once else sum(map(_bytes_of, self._parts))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for part in self._parts:
            yield from read_dataset(part)


def _datasets(source: Any) -> list[Any] | None:
    """The datasets in what is given, alone or as the splits of one."""
    parts = list(source.values()) if isinstance(source, Mapping) else [source]
    return parts if parts and all(map(is_dataset, parts)) else None


def _bytes_of(dataset: Any) -> int:
    """The bytes of a dataset's columns in memory, for the share of the table's rows that it shows."""
    table = getattr(dataset, "data", None)
    size, rows = getattr(table, "nbytes", None), getattr(table, "num_rows", None)
    return size * len(dataset) // rows if isinstance(size, int) and isinstance(rows, int) and rows else len(dataset)


def _size(value: Any) -> int:
    """Characters in all, roughly: for progress."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Document):
        return len(value.text) or _size(value.sentences) or _size(value.words)
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0


def _keep(items: Iterable[Any], spool: Path) -> int:
    """Write the items as JSON, one a line; returns their size."""
    total = 0
    with atomic_io.explain_os_errors(spool), spool.open("w", encoding="utf-8") as stream:
        for number, item in enumerate(items, 1):
            total += _size(item)
            kind, value = "item", dict(item) if isinstance(item, Mapping) else item
            if isinstance(item, Document):  # dataclasses.asdict copies every word
                kind, value = "document", {name: getattr(item, name) for name in Document.__slots__}
            try:
                stream.write(json.dumps([kind, value], default=_plain) + "\n")
            except TypeError as error:
                needed = "a text, a row of plain values or a Document is needed"
                raise InputError(f"documents, row {number}", error, needed, "leave out other fields") from None
    return total


def _plain(value: Any) -> Any:
    """Arrays and their numbers as lists and numbers; of anything else, which no reader looks at, nothing is kept."""
    return value.tolist() if hasattr(value, "tolist") else None


def _kept(spool: Path) -> Iterator[Any]:
    with spool.open(encoding="utf-8") as stream:
        for line in stream:
            kind, value = json.loads(line)
            if kind == "document":
                spans = {name: [tuple(span) for span in value[name]] for name in SPANS}
                value = Document(**{**value, **spans})
            yield value
