"""Documents of files: each read by its format, its compression and its encoding."""

import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.records.arrow import ArrowFile
from clozeworks.data.records.compressed import open_bytes, packing_of
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.delimited import read_delimited
from clozeworks.data.records.encoding_tables import FREQUENT
from clozeworks.data.records.encodings import AUTO, Transcoded, detect_file, is_utf8
from clozeworks.data.records.json_lines import read_json_lines
from clozeworks.data.records.lines import ROW_BYTES, Lines, open_input
from clozeworks.data.records.listing import ARROW, PACKED, TABLES, TEXT, Passed, kind_of, list_files
from clozeworks.data.records.mixture import advice, find_mixture
from clozeworks.data.records.signatures import refuse_other
from clozeworks.data.records.source import Source
from clozeworks.data.text.convert import SPANS, convert_records, has_fields, select_columns
from clozeworks.data.text.documents import Document, Reading
from clozeworks.data.text.lines import read_paragraphs

INPUT = "-"  # standard input

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to read: `name` is what messages call it, `named` whether the user did, rather than a directory of it."""

    path: Path
    name: str
    kind: str
    packing: str
    named: bool


class TextFiles:
    """The documents of files, directories, patterns and standard input, which is kept in `spool`."""

    def __init__(self, paths: Sequence[StrPath], reading: Reading, spool: Path | None):
        self._reading, self._spool = reading, None
        passed = Passed()
        found: dict[Path, TextFile] = {}  # each file once, where it was first met
        for path in paths or list_files([]):
            if path == INPUT:
                found[Path(INPUT)] = TextFile(Path(INPUT), INPUT, "", "", True)
                continue
            for file in list_files([path], passed):
                place, named = file.resolve(), file == Path(path)
                if named or place not in found:
                    found[place] = _file(file, named)
        if Path(INPUT) in found:  # everything else is there, so the input is worth waiting for
            self._spool = keep_input(spool)
            found[Path(INPUT)] = _spooled(self._spool)
        self._files = list(found.values())
        self._passed = passed
        passed.others -= {file.path for file in self._files}
        self._encodings: dict[Path, str] = {}
        self.name = str(paths[0]) if paths[0] != INPUT else "standard input"
        self.total = sum(_size(file) for file in self._files)

    def documents(self, counts: Counts) -> Iterator[Document]:
        counts.dangling_links, counts.other_files = len(self._passed.dangling), len(self._passed.others)
        for file in self._files:
            before, start = counts.documents, counts.bytes
            try:
                yield from self._read(file, counts, start)
                size = file.path.stat().st_size
            except OSError as error:
                given = error.strerror or str(error).splitlines()[0]
                raise InputError(file.name, given, "a readable file is needed", "check it") from error
            counts.bytes = start + size
            if counts.documents == before:
                counts.empty_files += 1
                if file.named:
                    given = "an empty file" if size == 0 else "no document in it"
                    raise InputError(file.name, given, "at least one document is needed", "point at a file with text")
        if counts.documents == 0:
            given = f"no document in {len(self._files)} files"
            raise InputError(self.name, given, "at least one document is needed", "point at files with text")

    def _read(self, file: TextFile, counts: Counts, start: int) -> Iterator[Document]:
        if self._reading.pairs and file.kind in TEXT:
            needed = "rows with two fields are needed for pairs (.jsonl, .csv, .tsv, .parquet, .arrow)"
            raise InputError(file.name, "plain text", needed, "convert it or leave out --pairs")
        if file.kind in ARROW:
            if not _size(file):
                return
            table = ArrowFile(file.path, file.name, select_columns(self._reading))
            counts.encodings["utf-8"] = counts.encodings.get("utf-8", 0) + 1
            for document in convert_records(Source(file.name, table.records(), "row"), self._reading, counts):
                counts.bytes = start + table.position()
                yield document
            return
        refuse_other(file.path, file.name, file.packing)
        encoding = self._encoding(file)
        counts.encodings[encoding] = counts.encodings.get(encoding, 0) + 1
        with self._opened(file, encoding) as (stream, position):
            lines = Lines(
                stream, file.name, self._reading.errors, counts, lambda: self._advice(file), " or use --errors skip"
            )
            for document in _read_documents(lines, file.kind, self._reading):
                counts.bytes = start + position()
                yield document

    @contextmanager
    def _opened(self, file: TextFile, encoding: str) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
        """The file as UTF-8 bytes."""
        with open_bytes(file.path, file.packing) as (stream, position):
            if not is_utf8(encoding):
                strict = self._reading.errors == "strict"
                raw = Transcoded(stream, encoding, file.name, strict, lambda: self._advice(file))
                stream = io.BufferedReader(raw, 1 << 16)
            yield stream, position

    def _encoding(self, file: TextFile) -> str:
        if self._reading.encoding != AUTO:
            return "utf-8" if is_utf8(self._reading.encoding) else self._reading.encoding
        if file.path not in self._encodings:
            found = detect_file(file.path, file.packing)
            if (found is None or found in FREQUENT) and (mixture := find_mixture(file.path, file.packing)):
                if self._reading.errors == "strict":
                    todo = "divide or convert it, or use --errors skip to leave out what is not UTF-8"
                    raise InputError(file.name, mixture, "one encoding is needed", todo)
                found = "utf-8"  # the lines in the other one are then counted; they would turn into wrong characters
            if found is None:
                needed = "an encoding that can be recognised is needed"
                raise InputError(file.name, "text in an unknown encoding", needed, "name it by --encoding NAME")
            self._encodings[file.path] = found
        return self._encodings[file.path]

    def _advice(self, file: TextFile) -> str:
        """What to do about bytes that do not decode."""
        return advice(file.path, file.packing, self._reading.encoding)

    def identity(self) -> list[dict[str, Any]] | None:
        if self._spool is not None:
            return None
        found = []
        for file in self._files:
            status = file.path.stat()
            found.append({"path": str(file.path), "bytes": status.st_size, "mtime_ns": status.st_mtime_ns})
        return found

    def sources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in self._files:
            source: dict[str, Any] = {"path": file.name, "bytes": _size(file)}
            if file.kind not in ARROW and not is_utf8(encoding := self._encoding(file)):
                source["encoding"] = encoding
            found.append(source)
        return found

    def forget(self) -> None:
        if self._spool is not None:
            self._spool.unlink(missing_ok=True)


def _read_documents(lines: Lines, kind: str, reading: Reading) -> Iterator[Document]:
    if kind in TEXT:
        return read_paragraphs(lines, reading)
    if kind in TABLES:
        pairs = reading.pairs or ()
        numbers = pairs if all(name.isdecimal() and int(name) for name in pairs) else ()
        select = select_columns(reading, without=SPANS)
        records = read_delimited(lines, kind, select, numbers, fits=lambda names: has_fields(names, reading))
    else:
        records = read_json_lines(lines.texts(ROW_BYTES, "is it JSON lines?"), lines)
    return convert_records(Source(lines.name, records), reading, lines.counts)


def _file(path: Path, named: bool) -> TextFile:
    packing = path.suffix.lower()
    return TextFile(path, str(path), kind_of(path), packing if packing in PACKED else "", named)


def _size(file: TextFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError as error:
        raise InputError(file.name, error.strerror or error, "a readable file is needed", "check it") from error


def keep_input(spool: Path | None) -> Path:
    """Copy standard input, which can be read only once, to the file."""
    stream = open_input("corpus.txt")
    if spool is None:
        raise InputError("standard input", "nowhere to keep it", "text is read twice", "write it to a file")
    with atomic_io.explain_os_errors(spool), spool.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
    if spool.stat().st_size == 0:
        spool.unlink()
        raise InputError(
            "standard input", "nothing", "at least one document is needed", "check the command before the |"
        )
    return spool


def _spooled(spool: Path) -> TextFile:
    """Standard input, whose format its first bytes tell: JSON lines begin with a brace, anything else is text."""
    with spool.open("rb") as stream:
        packing = packing_of(stream.read(8))
    with open_bytes(spool, packing) as (stream, _):
        head = stream.read(64).lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")
    return TextFile(spool, INPUT, ".jsonl" if head.startswith(b"{") else ".txt", packing, True)
