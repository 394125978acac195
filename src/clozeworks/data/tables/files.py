"""Files of labelled rows: each read by its ending, its compression, and as UTF-8."""

import difflib
import json
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any

from clozeworks.core.errors import InputError
from clozeworks.data.tables.arrow import from_arrow
from clozeworks.data.tables.conll import conll_rows, universal_rows
from clozeworks.data.tables.delimited import table_rows
from clozeworks.data.tables.nested import json_document
from clozeworks.data.tables.source import Source
from clozeworks.data.text.compressed import NAMES, open_bytes
from clozeworks.data.text.documents import Counts, Reading
from clozeworks.data.text.encodings import detect_file
from clozeworks.data.text.lines import Lines
from clozeworks.data.text.listing import ARROW, ROWS, TABLES, kind_of
from clozeworks.data.text.signatures import refuse_other

INPUT = "-"  # standard input
TEXT = ".txt"
TREEBANK = ".conllu"
CONLL = (".conll", ".bio", ".bioes", ".iob", ".iob2", ".bmes", ".ner")
KINDS = (*ROWS, ".json", *TABLES, *ARROW)


def from_file(
    path: str | os.PathLike[str], columns: Collection[str], kind: str | None = None, named: Collection[str] = ()
) -> Source:
    """The rows of a file; `kind` is an ending that tells its format where its own does not. Columns that are `named` by
    numbers alone may be those of a table without a header."""
    numbers = named if all(each.isdigit() for each in named) else ()
    if os.fspath(path) == INPUT:
        return _rows(_input_lines(), "standard input", kind or ".jsonl", columns, kind == TEXT, numbers)
    file, name = Path(path), os.fspath(path)
    _exists(file, name)
    if kind is None and kind_of(file) in ARROW:
        return from_arrow(file, name)
    return _rows(_file_lines(file, name), name, kind or kind_of(file), columns, kind == TEXT, numbers)


def _rows(
    lines: Iterator[tuple[int, str]],
    name: str,
    kind: str,
    columns: Collection[str],
    plain: bool,
    numbers: Collection[str],
) -> Source:
    """`plain`: somebody said that each line is one; otherwise a file of tokens may have any ending."""
    if kind in ROWS:
        return Source(name, _json_lines(lines, name))
    if kind in TABLES:
        return Source(name, table_rows(lines, name, kind, numbers))
    if kind == ".json":
        texts = list(lines)
        found = json_document("".join(text for _, text in texts), name)
        return Source(name, _json_lines(iter(texts), name)) if found is None else found
    if kind == TREEBANK:
        return Source(name, universal_rows(lines, name))
    if kind in CONLL or ("tokens" in columns and not plain):
        return Source(name, conll_rows(lines, name))
    if kind == TEXT and len(columns) == 1:
        return Source(name, ((number, text.rstrip("\r\n")) for number, text in lines if text.strip()))
    given = f"unknown ending {kind!r}" if kind != TEXT else "plain text"
    needed = f"rows with columns {', '.join(columns)} are needed in {', '.join(KINDS)}"
    raise InputError(name, given, needed, "rename or convert the file")


def _json_lines(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, Any]]:
    for number, text in lines:
        if not text.strip():
            continue
        try:
            yield number, json.loads(text)
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            todo = "name it .json" if number == 1 and text.strip() in ("[", "{") else "mend the line"
            needed = "one JSON object a line is needed"
            raise InputError(f"{name}, line {number}", f"not JSON ({error})", needed, todo) from None


def _file_lines(file: Path, name: str) -> Iterator[tuple[int, str]]:
    packing = file.suffix.lower() if file.suffix.lower() in NAMES else ""
    try:
        refuse_other(file, name, packing)
        with open_bytes(file, packing) as (stream, _):
            yield from _decoded(stream, name, lambda: _advice(file, name, packing))
    except OSError as error:
        raise InputError(name, error.strerror or error, "a readable file is needed", "check it") from error


def _input_lines() -> Iterator[tuple[int, str]]:
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        given = "nothing" if stream is None else "a terminal"
        todo = "try: cat rows.jsonl | clozeworks ... -"
        raise InputError("standard input", given, "a pipe or a file is needed", todo)
    yield from _decoded(stream, "standard input", lambda: "convert it by iconv -f ITS_ENCODING -t UTF-8")


def _decoded(stream: IO[bytes], name: str, advice: Callable[[], str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, the mark at the beginning of the first left out."""
    lines = Lines(stream, name, Reading(), Counts(), advice)
    number = offset = 0
    while raw := stream.readline():
        number += 1
        yield number, lines.decode(raw, number, offset) or ""
        offset += len(raw)


def _advice(file: Path, name: str, packing: str) -> str:
    """What to do about a file that is not UTF-8."""
    likely = detect_file(file, packing)
    if likely in (None, "utf-8"):
        return "mend the line, or save the file as UTF-8"
    told = "UTF-16" if likely.startswith("utf-16") else "UTF-32" if likely.startswith("utf-32") else likely.upper()
    unpacked = Path(name.removesuffix(file.suffix)) if packing else Path(name)
    new = unpacked.with_name(f"{unpacked.stem}-utf8{unpacked.suffix}")
    command = f"iconv -f {told} -t UTF-8 {shlex.quote(str(unpacked))} > {shlex.quote(str(new))}"
    return f"it looks like {told}: {'unpack it, then ' if packing else ''}{command}"


def _exists(file: Path, name: str) -> None:
    if not name or "\0" in name:
        raise InputError("rows", "an empty path" if not name else repr(name), "a file is needed", "name one")
    try:
        if file.is_file():
            return
        given = "a directory" if file.is_dir() else "no such file" if not file.exists() else ""
        close = difflib.get_close_matches(file.name, os.listdir(file.parent), n=1) if file.parent.is_dir() else []
    except OSError as error:
        raise InputError(name[:80], error.strerror or error, "a readable file is needed", "check it") from error
    if given:
        near = f"did you mean {file.with_name(close[0])}?" if close and not file.is_dir() else ""
        todo = near or ("name a file in it" if file.is_dir() else "check the spelling")
        raise InputError(name, given, "a file of rows is needed", todo)
