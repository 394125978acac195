"""Vectors as lines of text or as rows of bytes, the formats of the published C programs.

Text: a word and D numbers on each line, spaces between them; before them, in most files, a line that says `n D`.
Bytes: that line always, then for each word its letters, a space and D little-endian float32; some writers end a row
with a line break, others do not.
"""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.vectors.formats.stored import LONGEST, Errors, Gathered, Stored

LINES = 2048  # of text, parsed at once
CHUNK = 1 << 20  # bytes, parsed at once
BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"(\d+)[ \t]+(\d+)[ \t]*\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def header_of(line: bytes) -> tuple[int, int] | None:
    """How many words and how many numbers each, if a first line says so."""
    match = _HEADER.fullmatch(line)
    return (int(match[1]), int(match[2])) if match else None


def is_binary(sample: bytes) -> bool:
    """Whether bytes behind the first line are numbers rather than text; text has no control characters."""
    return _CONTROL.search(sample) is not None


def check_header(name: object, header: tuple[int, int], size: int | None, least: int) -> None:
    """A first line that cannot be true of a file of so many bytes is refused before room is made for it."""
    count, dim = header
    if count < 1 or dim < 1:
        raise InputError(name, f"{count} words of {dim} numbers", "at least 1 of both is needed", "check the file")
    if size is not None and count * (least * dim + 2) > size:
        given = f"its first line says {count:,} words of {dim:,} numbers, and it has {size:,} bytes"
        raise _incomplete(name, given)


def _incomplete(name: object, given: str) -> InputError:
    return InputError(name, given, "a whole file is needed", "copy or download it again")


def read_text(
    stream: IO[bytes], name: object, first: bytes, limit: int | None, errors: Errors, size: int | None
) -> Stored:
    """The rest of a text file whose first line was read."""
    first = first.removeprefix(BOM)
    header, number, expected = header_of(first), 1, None
    if header is None:
        while (dim := _numbers(first)) == 0 and errors == "skip" and (after := stream.readline()):
            first, number = after, number + 1
        if dim == 0:
            shown = repr(first[:40].decode(errors="replace").rstrip("\n"))
            where = f"{name} line {number:,}"
            raise InputError(where, shown, "a word and its numbers are needed", "is it a file of vectors?")
    else:
        check_header(name, header, size, 2)
        expected, dim = header
    gathered = Gathered(name, dim, expected, limit, errors)
    lines, number, gathered.skipped = ([first], number, number - 1) if header is None else ([], 2, 0)
    blank, more = 0, True
    while more and not gathered.full:
        lines += (more := stream.readlines(dim * 12 * LINES))
        end = len(lines)
        while end and not lines[end - 1].strip():
            end -= 1  # of a file, unless more comes
        wanted, lines = lines[:end], lines[end:]
        while wanted and not gathered.full:  # no line behind the last one that is wanted is looked at
            some = wanted if gathered.limit is None else wanted[: gathered.limit - len(gathered.words)]
            _add_lines(gathered, some, number)
            blank += sum(not line.strip() for line in some)
            number, wanted = number + len(some), wanted[len(some) :]
        lines = wanted + lines
    if expected is not None and gathered.limit == expected:
        seen = number - 2 - blank
        if seen != expected or any(line.strip() for line in lines) or any(line.strip() for line in stream):
            given = f"{f'{seen:,}' if seen < expected else 'more'} rows, and its first line says {expected:,}"
            raise _incomplete(name, given)
    return gathered.finish()


def _numbers(line: bytes) -> int:
    """How many numbers follow the word of a line; 0: it is no such line."""
    parts = line.split()
    dim = len(parts) - 1
    return dim if dim > 0 and _parsed(b" ".join(parts[1:]), dim) is not None else 0


def _add_lines(gathered: Gathered, lines: list[bytes], number: int) -> None:
    words: list[bytes] = []
    texts: list[bytes] = []
    numbers: list[int] = []
    dim = gathered.dim
    for place, line in enumerate(lines, number):
        word, _, text = line.rstrip().partition(b" ")
        if text.count(b" ") != dim - 1 or b"\t" in line:
            parts = line.split()
            if len(parts) != dim + 1:
                _refuse_line(gathered, parts, place)
                continue
            word, text = parts[0], b" ".join(parts[1:])
        words.append(word)
        texts.append(text)
        numbers.append(place)
    if not words:
        return
    rows = _parsed(b" ".join(texts), len(words) * dim)
    if rows is None:  # one of them is no number: find it
        kept = [_parsed(text, dim) for text in texts]
        for place, text, row in zip(numbers, texts, kept, strict=True):
            if row is None:
                wrong = next((part for part in text.split() if _parsed(part, 1) is None), b"")
                given = repr(wrong.decode(errors="replace"))
                gathered.refuse(place, given, f"{dim} numbers are needed after the word")
        sound = [k for k, row in enumerate(kept) if row is not None]
        words, numbers = [words[k] for k in sound], [numbers[k] for k in sound]
        rows = np.concatenate([np.empty(0, np.float32), *(row for row in kept if row is not None)])
    gathered.add(words, rows.reshape(-1, dim), numbers)


def _refuse_line(gathered: Gathered, parts: Sequence[bytes], place: int) -> None:
    dim = gathered.dim
    head = parts[: len(parts) - dim]
    if len(head) > 1 and all(_parsed(part, 1) is None for part in head):
        given = f"the word {b' '.join(head).decode(errors='replace')!r}"
        return gathered.refuse(place, given, "words have letters and no spaces")
    given = f"{len(parts) - 1} numbers" if parts else "an empty line"
    return gathered.refuse(place, given, f"{dim} are needed as in the lines before")


def _parsed(text: bytes, count: int) -> np.ndarray | None:
    """So many numbers, or None where they are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how older versions say it
        try:
            values = np.fromstring(text, np.float32, sep=" ")  # type: ignore[call-overload]
        except (ValueError, DeprecationWarning):
            return None
    return values if len(values) == count else None


def read_bytes(
    stream: IO[bytes], name: object, first: bytes, limit: int | None, errors: Errors, size: int | None
) -> Stored:
    """The rest of a binary file whose first line was read."""
    header = header_of(first)
    if header is None:
        needed = "a first line with the number of words and of numbers each"
        raise InputError(name, repr(first[:40].decode(errors="replace")), needed, "check the file")
    check_header(name, header, size, 4)
    expected, dim = header
    gathered = Gathered(name, dim, expected, limit, errors)
    seen, held = 0, b""
    while not gathered.full and seen < expected:
        more = stream.read(CHUNK)
        held += more
        used = _add_rows(gathered, held, seen, expected)
        seen, held = seen + used[0], held[used[1] :]
        if not more and seen < expected and not gathered.full:
            given = f"it ends within row {seen + 1:,} of {expected:,}"
            raise _incomplete(name, given)
        if not used[0] and len(held) > LONGEST + 4 * dim + CHUNK:
            raise InputError(f"{name} row {seen + 1:,}", "no end of its word", "a file of vectors", "check the file")
    if seen == expected and (held + stream.read(1)).strip():
        given = f"more bytes than the {expected:,} rows that its first line says"
        raise _incomplete(name, given)
    return gathered.finish()


def _add_rows(gathered: Gathered, held: bytes, seen: int, expected: int) -> tuple[int, int]:
    """Whole rows at the beginning of some bytes; how many they are, and where they end."""
    words, parts, begin, width = [], [], 0, 4 * gathered.dim
    while seen + len(words) < expected:
        space = held.find(b" ", begin)
        if space < 0 or len(held) - space - 1 < width:
            break
        words.append(held[begin:space].lstrip(b"\n"))
        if _CONTROL.search(words[-1]):
            needed = "rows must end where the next word begins: does a word before it have a space?"
            where = f"{gathered.name} row {seen + len(words):,}"
            raise InputError(where, "numbers in place of a word", needed, "write such words with _, or as text")
        parts.append(held[space + 1 : space + 1 + width])
        begin = space + 1 + width
    rows = np.frombuffer(b"".join(parts), "<f4").reshape(-1, gathered.dim)
    gathered.add(words, rows, range(seen + 1, seen + 1 + len(words)), "row")
    return len(words), begin


def write_rows(path: Path, stored: Stored, binary: bool, header: bool = True) -> None:
    """Lines or rows as the C programs and their readers have them; numbers as short as float32 is exact."""
    with path.open("wb") as file:
        if header:
            file.write(f"{len(stored.words)} {stored.table.shape[1]}\n".encode())
        for word, row in zip(stored.words, stored.table, strict=True):
            numbers = row.astype("<f4").tobytes() if binary else f"{' '.join(map(str, row))}\n".encode()
            file.write(word.encode() + b" " + numbers)
