"""Rows of .jsonl, .csv and .tsv files and of arrow tables, one at a time."""

import csv
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.text.documents import Reading
from clozeworks.data.text.lines import Lines
from clozeworks.data.text.records import SPANS, Place, fields_read

ROW_BYTES = 1 << 30  # a row of .jsonl has to be parsed whole, so it has a limit
CELL_CHARACTERS = 1 << 27  # a quote that is never closed makes one cell of all that follows
MARKS = (",", ";", "\t", "|")  # that may separate cells
BATCH_ROWS = 256  # of an arrow table read at once

Rows = Iterator[tuple[Place, Mapping[str, Any]]]


def json_rows(lines: Lines) -> Rows:
    """The rows of a .jsonl file; blank lines are passed over."""
    for number, _, text in _whole_lines(lines, "is it JSON lines?"):
        if text is None or not text.strip():
            continue
        where = _place(lines.name, number)
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            if lines.reading.errors != "skip":
                needed, todo = "one JSON object a line is needed", "mend it or use --errors skip"
                raise InputError(where(), f"not JSON ({error})", needed, todo) from None
            lines.counts.skipped += 1
            continue
        yield where, row


def table_rows(lines: Lines, kind: str) -> Rows:
    """The rows of a .csv or .tsv file below its header. A quoted cell may hold newlines; a quote in it is doubled.

    Cells are separated by what the ending says, unless only another mark (, ; | or tab) gives the header its field.
    A file without a header has numbers for names: the pairs `1,2` are its first two columns. In such a .tsv a quote
    is a character like any other, as `paste` leaves it.
    """
    csv.field_size_limit(max(csv.field_size_limit(), CELL_CHARACTERS))
    unreadable: list[int] = []  # lines that did not decode, since the last row
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number
        for at, raw, text in _whole_lines(lines, "is a quote not closed?"):
            number = at
            if text is None:  # the row it belongs to goes with it, and its quotes still count
                unreadable.append(at)
                text = raw.decode("utf-8", "replace")
            yield text

    source = texts()
    first = next((text for text in source if text.strip()), "")
    delimiter = _delimiter(first, "\t" if kind == ".tsv" else ",", lines.reading)
    numbered = _numbered(first, delimiter, lines.reading)
    quoting = csv.QUOTE_NONE if numbered and delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(itertools.chain([first], source), delimiter=delimiter, strict=True, quoting=quoting)
    header: list[str] | None = None
    places: dict[str, int] = {}
    ahead = 1  # lines taken and not yet parsed
    while True:
        begin, ahead = number + 1 - ahead, 0
        where = _place(lines.name, begin)
        try:
            row = next(reader)
            if unreadable:
                unreadable.clear()
                continue
            if not row:
                continue
            if header is None:
                header = list(map(str, range(1, len(row) + 1))) if numbered else [name.strip() for name in row]
                read = fields_read(header, where(), lines.reading, "column")
                places = {name: header.index(name) for name in read if name not in SPANS}
                if not numbered:
                    continue
            if len(row) != len(header):
                raise csv.Error(f"{len(row)} cells under {len(header)} headers")
        except StopIteration:
            return
        except csv.Error as error:
            if lines.reading.errors != "skip":
                needed = "a table with one cell for each header, quotes inside quotes doubled, is needed"
                raise InputError(where(), error, needed, "mend it or use --errors skip") from None
            lines.counts.skipped += 1
            unreadable.clear()
            continue
        yield where, {name: row[place] for name, place in places.items()}


def _delimiter(header: str, usual: str, reading: Reading) -> str:
    """What separates the names of a header: the usual mark, or the only other one that gives the fields to read; where
    none does, the only one that divides it at all, so that a message can name the fields."""
    try:
        names = {mark: [name.strip() for name in next(csv.reader([header], delimiter=mark), [])] for mark in MARKS}
    except csv.Error:
        return usual
    fit = [mark for mark in MARKS if _has_fields(names[mark], reading)]
    several = [mark for mark in MARKS if len(names[mark]) > 1]
    if usual in fit or (usual in several and len(fit) != 1):
        return usual
    return fit[0] if len(fit) == 1 else several[0] if len(several) == 1 and not fit else usual


def _numbered(first: str, delimiter: str, reading: Reading) -> bool:
    """Whether columns are asked for by number, and the first line does not name them so."""
    pairs = reading.pairs or ()
    names = [name.strip() for name in first.split(delimiter)]
    return bool(pairs) and all(name.isdecimal() and int(name) for name in pairs) and not set(pairs) <= set(names)


def _has_fields(names: list[str], reading: Reading) -> bool:
    try:
        return bool(fields_read(names, "", reading))
    except InputError:
        return False


def _whole_lines(lines: Lines, doubt: str) -> Iterator[tuple[int, bytes, str | None]]:
    """Number, bytes and text of each line; the text is None where it does not decode and is to be left out."""
    offset = number = 0
    while raw := lines.stream.readline(ROW_BYTES):
        number += 1
        if len(raw) == ROW_BYTES:
            given = f"a row of more than {ROW_BYTES >> 20} MB"
            raise InputError(f"{lines.name} line {number}", given, "a row holds one document", doubt)
        yield number, raw, lines.decode(raw, number, offset)
        offset += len(raw)


def _place(name: str, number: int, what: str = "line") -> Place:
    return lambda: f"{name} {what} {number}"


class ArrowTable:
    """The rows of a parquet, arrow or feather file, by record batches: only the columns that are read are unpacked."""

    def __init__(self, file: Path, name: str, kind: str, reading: Reading):
        self._file, self._name, self._kind, self._reading = file, name, kind, reading
        self._size = file.stat().st_size
        self._done = 0

    def position(self) -> int:
        """How many bytes of the file were read, more or less."""
        return min(self._done, self._size)

    def rows(self) -> Rows:
        with _arrow(self._file, self._name) as arrow:
            number = 0
            for batch in self._parquet() if self._kind == ".parquet" else self._batches(arrow):
                names = batch.schema.names
                read = fields_read(names, self._name, self._reading, "column")
                for begin in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(begin, BATCH_ROWS)
                    columns = [part.column(names.index(name)).to_pylist() for name in read]
                    for cells in zip(*columns, strict=True):
                        number += 1
                        yield _place(self._name, number, "row"), dict(zip(read, cells, strict=True))

    def _parquet(self) -> Iterator[Any]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self._file, buffer_size=1 << 20, pre_buffer=False) as table:
            read = fields_read(table.schema_arrow.names, self._name, self._reading, "column")
            rows, total = 0, max(1, table.metadata.num_rows)
            for batch in table.iter_batches(BATCH_ROWS, columns=list(read), use_threads=False):
                rows += batch.num_rows
                self._done = self._size * rows // total
                yield batch

    def _batches(self, arrow: Any) -> Iterator[Any]:
        """The two formats of Arrow: a file with an index of its batches at the end, or a stream of them."""
        with arrow.memory_map(str(self._file)) as source:
            indexed = source.read(6) == b"ARROW1"
            source.seek(0)
            opened = arrow.ipc.open_file if indexed else arrow.ipc.open_stream
            names = opened(source).schema.names
            read = fields_read(names, self._name, self._reading, "column")
            source.seek(0)
            options = arrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in read], use_threads=False)
            table = opened(source, options=options)
            if indexed:
                for index in range(table.num_record_batches):
                    yield table.get_batch(index)
                    self._done = self._size * (index + 1) // table.num_record_batches
            else:
                for batch in table:
                    yield batch
                    self._done = source.tell()


@contextmanager
def _arrow(file: Path, name: str) -> Iterator[Any]:
    """The package pyarrow, whose complaints about the file become ours."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        needed, todo = "the package pyarrow is needed to read it", "pip install clozeworks[arrow]"
        raise InputError(name, f"a {file.suffix.lower()} file", needed, todo) from None
    try:
        yield pyarrow
    except pyarrow.ArrowException as error:
        given = f"not {file.suffix.lower()[1:]} ({str(error).splitlines()[0][:100]})"
        raise InputError(name, given, "a whole file is needed", "write or download it again") from None
