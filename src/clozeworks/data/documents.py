"""Text files into documents, streaming: the memory used depends on the longest piece, never on the size of a file.

A `.txt` file holds lines, and a blank line ends a document. A `.jsonl` file holds one document a line, its text in one
field, its paragraphs joined by newline. Each may be compressed (`.gz`, `.zst`).
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Literal, get_args

from clozeworks.data.compressed import open_bytes
from clozeworks.errors import InputError, suggest

Errors = Literal["strict", "replace", "skip"]

ENDINGS = tuple(kind + packed for kind in (".txt", ".jsonl") for packed in ("", ".gz", ".zst"))
PART_CHARACTERS = 1_000_000  # a longer document is handed on in parts, so that no document has to fit in memory
LINE_BYTES = 1 << 20  # how much of one line of .txt is held at once
ROW_BYTES = 1 << 30  # a row of .jsonl has to be parsed whole, so it has a limit

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LAST_BORDER = re.compile(r".*[.!?]\s|.*[。！？；…]|.*\s", re.DOTALL)


@dataclass(slots=True)
class Document:
    """One document: `text` with a newline between paragraphs, or `sentences` already split.

    `words` are gold words, one list a sentence, that join to the sentence. `label` is for classification.
    `part` counts the pieces of a document too long to hold at once: part 1 continues the document before it.
    """

    text: str = ""
    source: str = ""
    sentences: list[str] | None = None
    words: list[list[str]] | None = None
    label: str | None = None
    part: int = 0


@dataclass(slots=True)
class Counts:
    """What reading has met so far. `bytes` are those of the files on disk (compressed ones count as stored)."""

    bytes: int = 0
    documents: int = 0
    characters: int = 0
    replaced: int = 0  # invalid UTF-8 sequences turned into U+FFFD
    skipped: int = 0  # lines or rows left out because they could not be read
    nul: int = 0  # NUL characters removed
    empty_rows: int = 0  # rows whose text is blank
    empty_files: int = 0
    long_documents: int = 0  # read in parts

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def list_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files behind the paths: directories give every file with a known ending, recursively, sorted by name."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        for file in _files_of(path):
            files.setdefault(file.resolve(), file)
    if not files:
        raise InputError("text", "no path", "at least one file or directory is needed", "name one")
    return list(files.values())


def read_documents(
    paths: Sequence[str | os.PathLike[str]],
    *,
    errors: Errors = "strict",
    field: str = "text",
    counts: Counts | None = None,
) -> Iterator[Document]:
    """Yield every document of the files and directories, in order.

    `errors` says what to do with text that is not UTF-8 (and, for `skip`, with rows that are not JSON):
    stop, put U+FFFD in its place, or leave the line out. Everything changed or left out is counted in `counts`.
    """
    if errors not in get_args(Errors):
        raise InputError("errors", errors, "one of strict, replace, skip is needed", suggest(errors, get_args(Errors)))
    counts = Counts() if counts is None else counts
    named = {Path(path).resolve() for path in paths}
    files = list_files(paths)
    for file in files:
        before, start = counts.documents, counts.bytes
        reader = _read_rows if ".jsonl" in file.name.lower() else _read_lines
        try:
            with open_bytes(file) as (stream, position):
                for document in reader(file, stream, errors, field, counts):
                    counts.bytes = start + position()
                    yield document
        except OSError as error:
            raise InputError(file, error.strerror or error, "a readable file is needed", "check it") from error
        counts.bytes = start + file.stat().st_size
        if counts.documents == before:
            counts.empty_files += 1
            if file.resolve() in named:
                given = "an empty file" if file.stat().st_size == 0 else "no document in it"
                raise InputError(file, given, "at least one document is needed", "point at a file with text")
    if counts.documents == 0:
        given = f"no document in {len(files)} files"
        raise InputError(paths[0], given, "at least one document is needed", "point at files with text")


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += [Path(folder, name) for name in names if name.lower().endswith(ENDINGS) and name[0] != "."]
        if not found:
            needed = f"a directory of text needs files that end in {', '.join(ENDINGS)}"
            raise InputError(path, "no readable file in this directory", needed, "rename the files or name another")
        return sorted(found)
    if not path.exists():
        raise InputError(path, "no such file or directory", "a path that exists is needed", _near(path))
    if not path.is_file():
        raise InputError(path, "not a regular file", "text is read twice, so a pipe will not do", "write it to a file")
    if not path.name.lower().endswith(ENDINGS):
        needed = f"a name that ends in {', '.join(ENDINGS)} is needed"
        raise InputError(path, f"unknown ending {path.suffix!r}", needed, "rename or convert the file")
    return [path]


def _near(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"{parent} does not exist either: check the spelling"
    close = difflib.get_close_matches(path.name, os.listdir(parent), n=1)
    return f"did you mean {parent / close[0]}?" if close else "check the spelling"


def _read_lines(file: Path, stream: IO[bytes], errors: Errors, _field: str, counts: Counts) -> Iterator[Document]:
    """Documents of a .txt file. A line longer than LINE_BYTES arrives, and is decoded, in pieces."""
    texts: list[str] = []  # of the current document; a piece that ends inside a line carries no newline
    held, part, number, offset, inside = 0, 0, 1, 0, False
    rest = b""  # the first bytes of a character that the next piece completes
    while piece := stream.readline(LINE_BYTES):
        raw, whole = rest + piece, piece.endswith(b"\n")
        rest = b"" if len(piece) < LINE_BYTES or whole else _unfinished(raw)
        raw = raw[: len(raw) - len(rest)]
        if offset == 0:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        text = _decode(raw, file, number, offset, errors, counts)
        offset += len(piece)
        if text is not None:
            line = text.rstrip("\r\n") if whole else text
            if line.strip():
                texts.append(line + "\n" if whole else line)
                held += len(line)
            elif whole and not inside:
                if texts:
                    yield _document("".join(texts), file, part, counts)
                texts, held, part = [], 0, 0
            else:
                texts.append("\n" if whole else line)
        inside = not whole
        number += whole
        if held > PART_CHARACTERS:
            head, tail = _cut_last("".join(texts))
            yield _document(head, file, part, counts)
            texts, held, part = ([tail] if tail else []), len(tail), part + 1
    if rest:
        text = _decode(rest, file, number, offset - len(rest), errors, counts)
        texts.append(text or "")
    if "".join(texts).strip():
        yield _document("".join(texts), file, part, counts)


def _read_rows(file: Path, stream: IO[bytes], errors: Errors, field: str, counts: Counts) -> Iterator[Document]:
    """Documents of a .jsonl file, one a row; blank rows are passed over."""
    offset = 0
    number = 0
    while raw := stream.readline(ROW_BYTES):
        number += 1
        if len(raw) == ROW_BYTES:
            given = f"a row of more than {ROW_BYTES >> 20} MB"
            raise InputError(f"{file} line {number}", given, "a row holds one document", "is it JSON lines?")
        start, offset = offset, offset + len(raw)
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not raw.strip():
            continue
        line = _decode(raw, file, number, start, errors, counts)
        text = None if line is None else _text_of_row(line, f"{file} line {number}", field, errors, counts)
        if text is None:
            continue
        if not text.strip():
            counts.empty_rows += 1
            continue
        part = 0
        while len(text) > PART_CHARACTERS:
            head, tail = _cut_last(text[:PART_CHARACTERS])
            yield _document(head, file, part, counts)
            text, part = tail + text[PART_CHARACTERS:], part + 1
        if text.strip():
            yield _document(text, file, part, counts)


def _text_of_row(line: str, where: str, field: str, errors: Errors, counts: Counts) -> str | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        if errors == "skip":
            counts.skipped += 1
            return None
        given = f"not JSON ({error})"
        raise InputError(where, given, "one JSON object a line is needed", "mend it or use --errors skip") from None
    if not isinstance(row, dict):
        given = f"JSON {type(row).__name__}"
        raise InputError(where, given, f"an object with a field {field!r} is needed", 'write {"text": "..."}')
    if field not in row:
        given = f"no field {field!r}"
        todo = f"{suggest(field, row)} (--field NAME)" if row else "the object is empty"
        raise InputError(where, given, f"the fields are {', '.join(row) or 'none'}", todo)
    text = row[field]
    if not isinstance(text, str):
        given = f"field {field!r} holds {type(text).__name__}"
        raise InputError(where, given, "a string is needed", "join paragraphs by newline")
    if "\\u" in line and _LONE_SURROGATE.search(text):
        if errors == "strict":
            given = "half a surrogate pair (\\ud800 to \\udfff) in a string"
            raise InputError(where, given, "Unicode text is needed", "use --errors replace or skip")
        if errors == "skip":
            counts.skipped += 1
            return None
        text, found = _LONE_SURROGATE.subn("\ufffd", text)
        counts.replaced += found
    if "\0" in text:
        counts.nul += text.count("\0")
        text = text.replace("\0", "")
    return text.replace("\r\n", "\n")


def _decode(raw: bytes, file: Path, number: int, offset: int, errors: Errors, counts: Counts) -> str | None:
    """UTF-8 to text; None when the line is to be left out."""
    if b"\0" in raw and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        counts.nul += raw.count(b"\0")
        raw = raw.replace(b"\0", b"")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            where = f"{file} line {number}, byte {offset + error.start}"
            given = f"0x{raw[error.start]:02x} is not UTF-8"
            todo = f"{_other_encoding(raw)}or use --errors replace or skip"
            raise InputError(where, given, "UTF-8 text is needed", todo) from None
        if errors == "skip":
            counts.skipped += 1
            return None
        text = raw.decode("utf-8", "replace")
        counts.replaced += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
        return text


def _other_encoding(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it looks like UTF-16: convert it with iconv -f utf-16 -t utf-8, "
    try:
        characters = raw.decode("gb18030")
    except UnicodeDecodeError:
        return "convert the file with iconv, "
    chinese = sum("一" <= character <= "鿿" for character in characters)
    return "it looks like GB18030: convert it with iconv -f gb18030 -t utf-8, " if chinese > 3 else "convert the file, "


def _unfinished(raw: bytes) -> bytes:
    """The bytes at the end that begin a UTF-8 character without ending it (or a carriage return before its newline)."""
    if raw.endswith(b"\r"):
        return b"\r"
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return raw[-back:] if back < need else b""
        if byte < 0x80:
            return b""
    return b""


def _cut_last(text: str) -> tuple[str, str]:
    """Cut at the last line, sentence or word border of the second half, or at the end if it has none."""
    middle = len(text) // 2
    newline = text.rfind("\n", middle)
    if newline >= 0:
        return text[: newline + 1], text[newline + 1 :]
    border = _LAST_BORDER.match(text, middle)
    end = border.end() if border else len(text)
    return text[:end], text[end:]


def _document(text: str, file: Path, part: int, counts: Counts) -> Document:
    counts.documents += part == 0
    counts.long_documents += part == 1
    counts.characters += len(text)
    return Document(text.rstrip("\n"), source=str(file), part=part)
