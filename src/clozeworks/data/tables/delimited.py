"""Rows of .csv and .tsv files below the line that names their columns."""

import csv
import re
from collections.abc import Collection, Iterator

from clozeworks.core.errors import InputError
from clozeworks.data.shards.notes import many
from clozeworks.data.tables.table import Row
from clozeworks.data.text.tables import CELL_CHARACTERS, MARKS

Lines = Iterator[tuple[int, str]]
Cells = Iterator[tuple[int, list[str]]]

_QUOTED = re.compile(r'"((?:[^"]|"")*+)"(?=\t|\Z)')
_OPEN = re.compile(r'(^|\t)"')
OVER = 1 << 20  # characters that a cell over several lines may have in a .tsv


def table_rows(lines: Lines, name: str, kind: str, numbers: Collection[str] = ()) -> Iterator[tuple[int, Row]]:
    """Rows by the names of the header, each with the number of its first line.

    Where columns are asked for by `numbers` that are no names, there is no header, and they are counted from 1.
    """
    header: list[str] = []
    for number, cells in tab_cells(lines, name) if kind == ".tsv" else comma_cells(lines, name):
        if not header and numbers and not {*numbers} <= {cell.strip() for cell in cells}:
            header = [str(at) for at in range(1, len(cells) + 1)]
        elif not header:
            header = [cell.strip() for cell in cells]
            twice = [column for column in header if column and header.count(column) > 1]
            if twice:
                given = f"two columns are called {twice[0]!r}"
                raise InputError(f"{name}, line {number}", given, "one of each name is needed", "rename one")
            continue
        if len(cells) != len(header):
            raise _uneven(name, number, len(cells), len(header))
        yield number, {column: cell for column, cell in zip(header, cells, strict=True) if column}


def comma_cells(lines: Lines, name: str) -> Cells:
    """Cells of a .csv, parted by commas, or by what parts a header that has none. A quoted cell may hold commas and
    newlines; a quote in it is doubled."""
    csv.field_size_limit(max(csv.field_size_limit(), CELL_CHARACTERS))
    first = next(((number, text) for number, text in lines if text.strip()), None)
    if first is None:
        return
    at = first[0] - 1  # the last line that was taken

    def texts() -> Iterator[str]:
        nonlocal at
        at = first[0]
        yield first[1]
        for number, text in lines:
            at = number
            yield text

    reader = csv.reader(texts(), delimiter=_mark(first[1]), strict=True)
    while True:
        begin = at + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            needed = "a table with quotes around cells that hold commas or quotes, quotes inside doubled, is needed"
            raise InputError(f"{name}, line {begin}", error, needed, "mend the row") from None
        if cells:
            yield begin, cells


def _mark(header: str) -> str:
    """What parts the names of a header."""
    widths = {mark: header.count(mark) for mark in MARKS}
    return "," if widths[","] else max(MARKS, key=widths.__getitem__)


def tab_cells(lines: Lines, name: str) -> Cells:
    """Cells of a .tsv. Where quotes are the rule of csv, they are read so; otherwise they are characters like others,
    as in files that were written without them: an open quote is one where this line and the next are whole rows."""
    ahead = _Ahead(lines)
    width = 0
    while (taken := ahead.take()) is not None:
        number, line = taken
        cells = line.split("\t")
        if not line.strip(" "):
            continue
        if width and (len(cells) != width or (_is_open(cells[-1]) and ahead.width() not in (0, width))):
            over = _over_lines(line, ahead, width)
            if over is None and len(cells) != width:
                raise _uneven(name, number, len(cells), width)
            cells = over or cells
        width = width or len(cells)
        yield number, [_unquoted(cell) for cell in cells]


class _Ahead:
    """Lines that can be looked at before they are taken, or given back."""

    def __init__(self, lines: Lines):
        self._lines, self._back = lines, []

    def take(self) -> tuple[int, str] | None:
        if self._back:
            return self._back.pop()
        found = next(self._lines, None)
        return None if found is None else (found[0], found[1].rstrip("\r\n"))

    def give_back(self, taken: list[tuple[int, str]]) -> None:
        self._back += reversed(taken)

    def width(self) -> int:
        """How many cells the next line has; 0 at the end."""
        found = self.take()
        self.give_back([] if found is None else [found])
        return 0 if found is None else found[1].count("\t") + 1


def _over_lines(line: str, ahead: _Ahead, width: int) -> list[str] | None:
    """Cells of which one holds tabs or newlines between its quotes; None, and no line taken, if there is none."""
    cells, taken = _parted(line), []
    while (len(cells) < width or _is_open(cells[-1])) and _OPEN.search(line) and len(line) < OVER:
        more = ahead.take()
        if more is None:
            break
        taken.append(more)
        line += "\n" + more[1]
        if '"' in more[1]:
            cells = _parted(line)
    if len(cells) == width and not _is_open(cells[-1]):
        return cells
    ahead.give_back(taken)
    return None


def _is_open(cell: str) -> bool:
    """Begun with a quote and not ended by one."""
    return cell.startswith('"') and not _QUOTED.fullmatch(cell)


def _parted(line: str) -> list[str]:
    cells, at = [], 0
    while at <= len(line):
        quoted = _QUOTED.match(line, at)
        end = quoted.end() if quoted else line.find("\t", at)
        end = len(line) if end < 0 else end
        cells.append(line[at:end])
        at = end + 1
    return cells


def _unquoted(cell: str) -> str:
    found = _QUOTED.fullmatch(cell) if cell.startswith('"') else None
    return found[1].replace('""', '"') if found else cell


def _uneven(name: str, number: int, found: int, width: int) -> InputError:
    needed = "one cell for each name in the first line is needed"
    todo = "mend the row: are there marks in a text that is not quoted?"
    return InputError(f"{name}, line {number}", f"{many(found, 'cell')} under {many(width, 'name')}", needed, todo)
