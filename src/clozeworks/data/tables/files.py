"""Files of labelled rows: each read by its ending, its compression, and as UTF-8."""

import difflib
import os
import shlex
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.records.arrow import ArrowFile
from clozeworks.data.records.compressed import open_bytes, packing_of_name
from clozeworks.data.records.delimited import read_delimited
from clozeworks.data.records.encodings import detect_file
from clozeworks.data.records.json_lines import read_json_lines
from clozeworks.data.records.lines import ROW_BYTES, Lines, explain_read_errors, open_input, refuse_device
from clozeworks.data.records.listing import ARROW, ROWS, TABLES, kind_of
from clozeworks.data.records.signatures import refuse_other
from clozeworks.data.records.source import Source, select_named
from clozeworks.data.tables.conll import read_conll, read_treebank
from clozeworks.data.tables.nested import read_json_document

INPUT = "-"  # standard input
TEXT = ".txt"
TREEBANK = ".conllu"
CONLL = (".conll", ".bio", ".bioes", ".iob", ".iob2", ".bmes", ".ner")
KINDS = (*ROWS, ".json", *TABLES, *ARROW)


def read_file(
    path: str | os.PathLike[str], columns: Collection[str], kind: str | None = None, named: Collection[str] = ()
) -> Source:
    """The records of a file; `kind` is an ending that says its format where its own does not. Columns that are `named`
    by numbers alone may be those of a table without a header."""
    plain = kind == TEXT
    if os.fspath(path) == INPUT:
        convert = "convert it by iconv -f ITS_ENCODING -t UTF-8"
        lines = Lines(open_input("rows.jsonl"), "standard input", advice=lambda: convert)
        return _read_lines(lines, kind or ".jsonl", columns, plain, named)
    file, name = Path(path), os.fspath(path)
    _check_exists(file, name)
    if kind is None and kind_of(file) in ARROW:
        with explain_read_errors(name):
            table = ArrowFile(file, name)
            return Source(name, table.records(), "row", table.classes())
    packing = packing_of_name(file)
    with explain_read_errors(name), ExitStack() as opened:
        refuse_other(file, name, packing)
        stream, _ = opened.enter_context(open_bytes(file, packing))
        lines = Lines(stream, name, advice=lambda: _advice(file, name, packing))
        source = _read_lines(lines, kind or kind_of(file), columns, plain, named)
        source.records = _close_after(source.records, opened.pop_all(), name)
        return source


def _read_lines(lines: Lines, kind: str, columns: Collection[str], plain: bool, named: Collection[str]) -> Source:
    """`plain`: somebody said that each line is one; otherwise a file of tokens may have any ending."""
    name = lines.name
    if kind in ROWS:
        return Source(name, read_json_lines(lines.texts(ROW_BYTES, "is it JSON lines?"), lines))
    if kind in TABLES:
        numbers = named if all(each.isdigit() for each in named) else ()
        return Source(name, read_delimited(lines, kind, select_named, numbers))
    if kind == ".json":
        texts = list(_limit_size(lines.texts(ROW_BYTES, "is it JSON?"), name))
        document = read_json_document("".join(text for _, text in texts), name)
        return Source(name, read_json_lines(texts, lines)) if document is None else document
    if kind == TREEBANK:
        return Source(name, read_treebank(lines.texts(), name))
    if kind in CONLL or ("tokens" in columns and not plain):
        return Source(name, read_conll(lines.texts(), name))
    if kind == TEXT and len(columns) == 1:
        if named:
            needed = "each line is a text and has no columns"
            raise InputError("--columns", ", ".join(named), needed, f"leave it out; {name} is read as lines")
        texts = lines.texts(ROW_BYTES, "is it text?")
        return Source(name, ((number, text.rstrip("\r\n")) for number, text in texts if text.strip()))
    given = f"unknown ending {kind!r}" if kind != TEXT else "plain text"
    needed = f"rows with columns {', '.join(columns)} are needed in {', '.join(KINDS)}"
    raise InputError(name, given, needed, "rename or convert the file")


def _limit_size(texts: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file that has to be read whole, which has a limit: a pipe may never end."""
    size = 0
    for number, text in texts:
        size += len(text)
        if size > ROW_BYTES:
            given, needed = f"more than {ROW_BYTES >> 20} MB", "a .json is read whole"
            raise InputError(name, given, needed, "use JSON lines (.jsonl)")
        yield number, text


def _close_after(records: Iterator[tuple[int, Any]], opened: ExitStack, name: str) -> Iterator[tuple[int, Any]]:
    """The records of an open file, which is closed after the last."""
    with explain_read_errors(name), opened:
        yield from records


def _advice(file: Path, name: str, packing: str) -> str:
    """What to do about a file that is not UTF-8."""
    likely = detect_file(file, packing)
    if likely in (None, "utf-8"):
        return "mend the line, or save the file as UTF-8"
    encoding = "UTF-16" if likely.startswith("utf-16") else "UTF-32" if likely.startswith("utf-32") else likely.upper()
    unpacked = Path(name.removesuffix(file.suffix)) if packing else Path(name)
    new = unpacked.with_name(f"{unpacked.stem}-utf8{unpacked.suffix}")
    command = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(unpacked))} > {shlex.quote(str(new))}"
    return f"it looks like {encoding}: {'unpack it, then ' if packing else ''}{command}"


def _check_exists(file: Path, name: str) -> None:
    if not name or "\0" in name:
        raise InputError("rows", "an empty path" if not name else repr(name), "a file is needed", "name one")
    with explain_read_errors(name[:80]):
        if file.is_file():
            return
        if file.exists():
            refuse_device(file, "a file of rows")
        given = "a directory" if file.is_dir() else "no such file" if not file.exists() else ""
        close = difflib.get_close_matches(file.name, os.listdir(file.parent), n=1) if file.parent.is_dir() else []
    if given:
        near = f"did you mean {file.with_name(close[0])}?" if close and not file.is_dir() else ""
        todo = near or ("name a file in it" if file.is_dir() else "check the spelling")
        raise InputError(name, given, "a file of rows is needed", todo)
