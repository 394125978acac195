"""Long documents in parts, so that no document has to fit in memory, and spans that follow their text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clozeworks.data.records.counts import Counts
from clozeworks.data.text.documents import Document, Span

PART_CHARACTERS = 1_000_000  # a longer document is handed on in parts

_LAST_BORDER = re.compile(r".*[.!?]\s|.*[。！？；…]|.*\s", re.DOTALL)


def is_long(characters: int) -> bool:
    return characters > PART_CHARACTERS


def in_parts(document: Document, counts: Counts) -> Iterator[Document]:
    """A document as it is, or in parts where it is too long. A span that a cut divides is left out and counted."""
    if document.words is not None or document.sentences is not None:
        yield from _sentences_in_parts(document, counts)
        return
    text, part = document.text, document.part
    spans = {kind: sorted(getattr(document, kind), reverse=True) for kind in ("phrases", "entities")}
    begin = 0
    while begin < len(text):
        end = len(text)
        if is_long(end - begin):
            end = begin + len(cut_part(text[begin : begin + PART_CHARACTERS])[0])
        piece = text[begin:end].rstrip("\n")
        own = {kind: _within(known, begin, begin + len(piece), end, counts) for kind, known in spans.items()}
        if piece.strip():
            yield count_document(replace(document, text=piece, part=part, **own), counts)
            part += 1
        else:  # spans of white space go with it
            counts.bad_spans += sum(map(len, own.values()))
        begin = end


def _within(spans: list[Span], begin: int, end: int, cut: int, counts: Counts) -> list[Span]:
    """Take the spans before `cut` from the end of the list; those inside [begin, end) are kept, relative to it."""
    inside: list[Span] = []
    while spans and spans[-1][0] < cut:
        first, last = spans.pop()
        if last <= end:
            inside.append((first - begin, last - begin))
        else:
            counts.bad_spans += 1
    return inside


def _sentences_in_parts(document: Document, counts: Counts) -> Iterator[Document]:
    units = document.words if document.words is not None else document.sentences or []
    part, first, held = document.part, 0, 0
    rest = replace(
        document, **{kind: sorted(getattr(document, kind), reverse=True) for kind in ("phrases", "entities")}
    )
    at = 0  # how much of the text went with the parts before
    for index, unit in enumerate(units):
        size = len(unit) if isinstance(unit, str) else sum(map(len, unit))
        if held and is_long(held + size):
            end = _after(document.text, units[first:index], at)
            yield count_document(_slice(rest, first, index, part, at, end, counts), counts)
            part, first, held, at = part + 1, index, 0, end
        held += size
    if first == 0:
        yield count_document(document, counts)
    else:
        yield count_document(_slice(rest, first, len(units), part, at, len(document.text), counts), counts)


def _after(text: str, units: Sequence[str | list[str]], at: int) -> int:
    """Where the last of these sentences ends in the text; as far as it was if it does not stand there."""
    for unit in units:
        sentence = unit if isinstance(unit, str) else "".join(unit)
        place = text.find(sentence, at)
        at = at if place < 0 else place + len(sentence)
    return at


def _slice(document: Document, first: int, last: int, part: int, begin: int, end: int, counts: Counts) -> Document:
    """Some of the sentences, with the text and the spans (the last first) that go with them."""
    words, sentences = document.words, document.sentences
    own = {kind: _within(getattr(document, kind), begin, end, end, counts) for kind in ("phrases", "entities")}
    return replace(
        document,
        text=document.text[begin:end],
        words=None if words is None else words[first:last],
        sentences=None if sentences is None else sentences[first:last],
        part=part,
        **own,
    )


def cut_part(text: str) -> tuple[str, str]:
    """Cut at the last line, sentence or word border of the second half, or at the end if it has none."""
    middle = len(text) // 2
    newline = text.rfind("\n", middle)
    if newline >= 0:
        return text[: newline + 1], text[newline + 1 :]
    border = _LAST_BORDER.match(text, middle)
    end = border.end() if border else len(text)
    return text[:end], text[end:]


def count_document(document: Document, counts: Counts) -> Document:
    counts.documents += document.part == 0
    counts.long_documents += document.part == 1
    if document.text:
        counts.characters += len(document.text)
    elif document.words is not None:
        counts.characters += sum(len(word) for words in document.words for word in words)
    else:
        counts.characters += sum(map(len, document.sentences or ()))
    return document
