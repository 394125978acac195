"""Files with a token a line and a blank line between sentences."""

import re
from collections.abc import Iterable, Iterator

from clozeworks.core.errors import InputError
from clozeworks.data.records.source import Record
from clozeworks.data.records.wording import pluralize

_SPACES = re.compile("[ \t]+")  # an ideographic space may be a token
_BORDER = "-DOCSTART-"
_UNIVERSAL = 10  # columns of a treebank


def read_treebank(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[int, Record]]:
    """Sentences of a treebank (CoNLL-U): words, and their parts of speech (UPOS)."""

    def words() -> Iterator[tuple[int, str]]:
        for number, line in lines:
            cells = line.rstrip("\r\n").split("\t")
            if not line.strip():
                yield number, ""
            elif line.startswith("#") or not cells[0].isdigit():  # what several words are written as, or was left out
                continue
            elif len(cells) != _UNIVERSAL:
                needed = f"{_UNIVERSAL} columns with tabs between them are needed"
                raise InputError(f"{name}, line {number}", pluralize(len(cells), "column"), needed, "mend the line")
            else:
                yield number, f"{cells[1]}\t{cells[3]}"

    return read_conll(words(), name)


def read_conll(lines: Iterable[tuple[int, str]], name: str) -> Iterator[tuple[int, Record]]:
    """Sentences: `tokens` from the first column and, where there are two or more, `tags` from the last.

    Columns are divided by tabs, or by spaces where a line has no tab. A row has the number of its first line.
    """
    begin, tokens, tags = 0, [], []
    width = 0
    for number, line in lines:
        line = line.rstrip("\r\n")
        cells = [cell.strip(" ") for cell in line.split("\t")] if "\t" in line else _SPACES.split(line.strip(" "))
        if not any(cells):
            if tokens:
                yield begin, _record(tokens, tags)
            begin, tokens, tags = 0, [], []
            continue
        if cells[0] == _BORDER:
            continue
        width = width or len(cells)
        if len(cells) != width or not cells[0]:
            given = f"{pluralize(len(cells), 'column')}, {line[:40]!r}" if cells[0] else f"no token, {line[:40]!r}"
            columns = pluralize(width, "column")
            needed = f"{columns} as in the lines before, the token first and the tag last, are needed"
            raise InputError(f"{name}, line {number}", given, needed, "mend the line; comments have no place here")
        begin = begin or number
        tokens.append(cells[0])
        if width > 1:
            tags.append(cells[-1])
    if tokens:
        yield begin, _record(tokens, tags)


def _record(tokens: list[str], tags: list[str]) -> Record:
    return {"tokens": tokens, "tags": tags} if tags else {"tokens": tokens}
