""".txt files into documents: a blank line ends a document."""

import re
from collections.abc import Iterator

from clozeworks.core.characters import is_wide
from clozeworks.data.records.lines import Lines
from clozeworks.data.text.documents import Document, Reading
from clozeworks.data.text.normal import normalise
from clozeworks.data.text.parts import count_document, cut_part, is_long

LINE_BYTES = 1 << 20  # how much of one line of .txt is held at once

_FOLD = re.compile(r"(\S)?[^\S\n]*\n[^\S\n]*(?=(\S))")


def read_paragraphs(lines: Lines, reading: Reading) -> Iterator[Document]:
    """Documents of a .txt file. A line longer than LINE_BYTES arrives, and is decoded, in pieces."""
    stream, counts = lines.stream, lines.counts
    texts: list[str] = []  # of the current document; a piece that ends inside a line carries no newline
    held, part, number, offset, inside, changed = 0, 0, 1, 0, False, False
    rest = b""  # the first bytes of a character that the next piece completes

    def document(text: str) -> Document:
        nonlocal changed
        normal = normalise(text, reading.unicode)
        if normal != text and not changed:
            counts.normalised += 1
            changed = True
        return count_document(Document(normal.rstrip("\n"), source=lines.name, part=part), counts)

    while piece := stream.readline(LINE_BYTES):
        raw, whole = rest + piece, piece.endswith(b"\n")
        begin = offset - len(rest)
        rest = b"" if len(piece) < LINE_BYTES or whole else _unfinished(raw)
        text = lines.decode(raw[: len(raw) - len(rest)], number, begin)
        offset += len(piece)
        if text is not None:
            line = text.rstrip("\r\n") if whole else text
            if line.strip():
                texts.append(line + "\n" if whole else line)
                held += len(line)
            elif whole and not inside:
                if (joined := "".join(texts)).strip():  # a long line of blanks alone is no document
                    yield document(_folded(joined, reading))
                texts, held, part, changed = [], 0, 0, False
            else:
                texts.append(line + "\n" if whole else line)
        inside = not whole
        number += whole
        if is_long(held):
            text = _folded("".join(texts), reading)
            ending = "\n" if reading.unwrap and text.endswith("\n") else ""  # of a wrapped line: no border
            head, tail = cut_part(text.removesuffix(ending))
            tail += ending
            yield document(head)
            texts, held, part = ([tail] if tail else []), len(tail), part + 1
    if rest:
        texts.append(lines.decode(rest, number, offset - len(rest)) or "")
    if "".join(texts).strip():
        yield document(_folded("".join(texts), reading))


def _folded(text: str, reading: Reading) -> str:
    """The lines of a paragraph as one, where that is asked for; the newline at the end stays."""
    return _FOLD.sub(_fold, text) if reading.unwrap else text


def _fold(match: re.Match[str]) -> str:
    before, after = match[1] or "", match[2]
    return before + ("" if not before or (is_wide(before) and is_wide(after)) else " ")


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
