"""Documents of files: each read by its format, its compression and its encoding."""

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.records.arrow import ArrowFile
from clozeworks.data.records.compressed import open_bytes, packing_of, packing_of_name
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.delimited import read_delimited
from clozeworks.data.records.encoding_tables import FREQUENT
from clozeworks.data.records.encodings import AUTO, Transcoded, detect_file, is_utf8
from clozeworks.data.records.json_lines import read_json_lines
from clozeworks.data.records.lines import ROW_BYTES, Lines, explain_read_errors, open_input
from clozeworks.data.records.listing import ARROW, ROWS, TABLES, TEXT, Passed, kind_of, list_files
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
        files: dict[Path, TextFile] = {}  # each once, where it was first met
        for path in paths or list_files([]):
            if path == INPUT:
                files[Path(INPUT)] = TextFile(Path(INPUT), INPUT, "", "", True)
                continue
            for file in list_files([path], passed):
                place, named = file.resolve(), file == Path(path)
                if named or place not in files:
                    files[place] = TextFile(file, str(file), kind_of(file), packing_of_name(file), named)
        if Path(INPUT) in files:  # everything else is there, so the input is worth waiting for
            self._spool, kind, packing = keep_input(spool)
            files[Path(INPUT)] = TextFile(self._spool, INPUT, kind, packing, True)
        self._files = list(files.values())
        self._refuse_idle()
        self._passed = passed
        passed.others -= {file.path for file in self._files}
        self._encodings: dict[Path, str] = {}
        self._status = {file.path: _status(file) for file in self._files}
        self.name = str(paths[0]) if paths[0] != INPUT else "standard input"
        self.total = sum(size for size, _ in self._status.values())

    def _refuse_idle(self) -> None:
        """Refuse what none of the files has a use for: whoever asked for it would wait for its effect."""
        kinds, reading, usual = {file.kind for file in self._files}, self._reading, Reading()
        if reading.field != usual.field and kinds <= {*TEXT}:
            needed = "lines of text have no fields"
            raise InputError("--field", reading.field, needed, "leave it out, or give .jsonl, .csv, .tsv or .parquet")
        if reading.unwrap and kinds <= {*ROWS, *TABLES, *ARROW}:
            needed = "it joins lines of .txt, and a row is one text whatever its lines"
            raise InputError("--unwrap", ", ".join(sorted(kinds)), needed, "leave it out")
        if reading.encoding not in (usual.encoding, AUTO) and kinds <= {*ARROW}:
            needed = f"{', '.join(sorted(kinds))} has letters, not bytes that could mean others"
            raise InputError("--encoding", reading.encoding, needed, "leave it out")

    def documents(self, counts: Counts) -> Iterator[Document]:
        counts.dangling_links, counts.other_files = len(self._passed.dangling), len(self._passed.others)
        for file in self._files:
            before, start = counts.documents, counts.bytes
            size, _ = self._status[file.path]
            with self._expect_unchanged(file), explain_read_errors(file.name):
                yield from self._read(file, counts, start)
            counts.bytes = start + size
            if counts.documents == before:
                counts.empty_files += 1
                if file.named:
                    given = "an empty file" if size == 0 else "no document in it"
                    raise InputError(file.name, given, "at least one document is needed", "point at a file with text")

    @contextmanager
    def _expect_unchanged(self, file: TextFile) -> Iterator[None]:
        """Refuse a file that is another one after it was read, or was before: text is read twice, and must not differ.

        What went wrong in between, a line that was cut for example, is then no fault of the text.
        """
        trouble = None
        try:
            yield
        except Exception as error:
            trouble = error
        if _status(file) != self._status[file.path]:
            given, needed = "it changed while it was read", "text is read twice and must stay the same"
            raise InputError(file.name, given, needed, "run it again when nobody writes to it") from None
        if trouble is not None:
            raise trouble

    def _read(self, file: TextFile, counts: Counts, start: int) -> Iterator[Document]:
        if self._reading.pairs and file.kind in TEXT:
            needed = "rows with two fields are needed for pairs (.jsonl, .csv, .tsv, .parquet, .arrow)"
            raise InputError(file.name, "plain text", needed, "convert it or leave out --pairs")
        if file.kind in ARROW:
            if not self._status[file.path][0]:
                return
            table = ArrowFile(file.path, file.name, select_columns(self._reading))
            counts.encodings["utf-8"] += 1
            for document in convert_records(Source(file.name, table.records(), "row"), self._reading, counts):
                counts.bytes = start + table.position()
                yield document
            return
        refuse_other(file.path, file.name, file.packing)
        encoding = self._encoding(file)
        counts.encodings[encoding] += 1
        errors = self._reading.errors
        todo = partial(advice, file.path, file.packing, self._reading.encoding)
        with open_bytes(file.path, file.packing) as (stream, position):
            if not is_utf8(encoding):
                stream = io.BufferedReader(Transcoded(stream, encoding, file.name, errors == "strict", todo), 1 << 16)
            lines = Lines(stream, file.name, errors, counts, todo, " or use --errors skip")
            for document in _read_documents(lines, file.kind, self._reading):
                counts.bytes = start + position()
                yield document

    def _encoding(self, file: TextFile) -> str:
        if self._reading.encoding != AUTO:
            return "utf-8" if is_utf8(self._reading.encoding) else self._reading.encoding
        if file.path not in self._encodings:
            encoding = detect_file(file.path, file.packing)
            if (encoding is None or encoding in FREQUENT) and (mixture := find_mixture(file.path, file.packing)):
                if self._reading.errors == "strict":
                    todo = "divide or convert it, or use --errors skip to leave out what is not UTF-8"
                    raise InputError(file.name, mixture, "one encoding is needed", todo)
                encoding = "utf-8"  # lines in the other one are then counted; they would turn into wrong characters
            if encoding is None:
                needed = "an encoding that can be recognised is needed"
                raise InputError(file.name, "text in an unknown encoding", needed, "name it by --encoding NAME")
            self._encodings[file.path] = encoding
        return self._encodings[file.path]

    def identity(self) -> list[dict[str, Any]] | None:
        if self._spool is not None:
            return None
        return [{"path": str(path), "bytes": size, "mtime_ns": when} for path, (size, when) in self._status.items()]

    def sources(self) -> list[dict[str, Any]]:
        sources: list[dict[str, Any]] = []
        for file in self._files:
            sources.append({"path": file.name, "bytes": self._status[file.path][0]})
            if file.kind not in ARROW and not is_utf8(encoding := self._encoding(file)):
                sources[-1]["encoding"] = encoding
        return sources


def _read_documents(lines: Lines, kind: str, reading: Reading) -> Iterator[Document]:
    if kind in TEXT:
        return read_paragraphs(lines, reading)
    if kind in TABLES:
        pairs = reading.pairs or ()
        numbers = pairs if all(name.isdecimal() and int(name) for name in pairs) else ()
        select = select_columns(reading, without=SPANS)
        records = read_delimited(lines, kind, select, numbers, fits=lambda names: has_fields(names, reading))
    else:
        assert kind in ROWS, f"nothing reads {kind}"
        records = read_json_lines(lines.texts(ROW_BYTES, "is it JSON lines?"), lines)
    return convert_records(Source(lines.name, records), reading, lines.counts)


def _status(file: TextFile) -> tuple[int, int]:
    """Bytes, and when they were last written."""
    with explain_read_errors(file.name):
        at = file.path.stat()
    return at.st_size, at.st_mtime_ns


def keep_input(spool: Path | None) -> tuple[Path, str, str]:
    """Copy standard input, which can be read only once, to the file; and the endings of its format and compression.

    Its first bytes say the format: JSON lines begin with a brace, anything else is text.
    """
    stream = open_input("corpus.txt")
    if spool is None:
        raise InputError("standard input", "nowhere to keep it", "text is read twice", "write it to a file")
    with atomic_io.explain_os_errors(spool), spool.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
    if spool.stat().st_size == 0:
        spool.unlink()
        todo = "check the command before the |"
        raise InputError("standard input", "nothing", "at least one document is needed", todo)
    with spool.open("rb") as stream:
        packing = packing_of(stream.read(8))
    with open_bytes(spool, packing) as (stream, _):
        head = stream.read(64).lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")
    return spool, ".jsonl" if head.startswith(b"{") else ".txt", packing
