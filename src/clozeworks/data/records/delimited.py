"""Records of .csv and .tsv files below the line that names their columns."""

import csv
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from clozeworks.data.records.lines import ROW_BYTES, Lines
from clozeworks.data.records.source import Record, Select
from clozeworks.data.records.wording import pluralize

CELL_CHARACTERS = 1 << 27  # a quote that is never closed makes one cell of all that follows
MARKS = (",", ";", "\t", "|")  # that may separate cells
OVER = 1 << 20  # characters that a cell over several lines may have in a .tsv with quotes of either kind

Texts = Iterator[tuple[int, str]]
Cells = Iterator[tuple[int, list[str]]]
Fits = Callable[[Sequence[str]], bool]  # whether columns of these names have what is to be read

_QUOTED = re.compile(r'"((?:[^"]|"")*+)"(?=\t|\Z)')
_OPEN = re.compile(r'(^|\t)"')


def read_delimited(
    lines: Lines, kind: str, select: Select, numbers: Collection[str] = (), fits: Fits | None = None
) -> Iterator[tuple[int, Record]]:
    """Records by the names of the header, each with the number of its first line.

    Cells are separated by what the ending (`kind`) says, or by what divides a header that does not have it; `fits`
    decides between marks, where it is known what is to be read. Without it, quotes of a .tsv are those of csv or
    characters like others, as each line has them. Where columns are asked for by `numbers` that are no names, there is
    no header, they are counted from 1, and quotes of a .tsv are characters, as `paste` leaves them.
    """
    csv.field_size_limit(max(csv.field_size_limit(), CELL_CHARACTERS))
    unreadable: list[int] = []  # lines that did not decode, since the last record
    texts = _read_texts(lines, unreadable)
    first = next((line for line in texts if line[1].strip()), None)
    if first is None:
        return
    usual = "\t" if kind == ".tsv" else ","
    either = kind == ".tsv" and fits is None
    mark = usual if either else _choose_mark(first[1], usual, fits)
    numbered = bool(numbers) and not {*numbers} <= {*_split_header(first[1], mark)}
    texts = itertools.chain([first], texts)
    if either:
        cells_of_lines = _read_tab_cells(texts, lines)
    else:
        cells_of_lines = _read_csv_cells(texts, lines, mark, not (numbered and mark == "\t"), unreadable)
    width, places = 0, {}
    for number, cells in cells_of_lines:
        if not width:
            names = [str(at) for at in range(1, len(cells) + 1)] if numbered else [cell.strip() for cell in cells]
            width, places = len(cells), {name: names.index(name) for name in select(names, lines.place(number))}
            if not numbered:
                continue
        if len(cells) != width:
            _refuse_uneven(lines, number, len(cells), width)
            continue
        yield number, {name: cells[place] for name, place in places.items()}


def _read_texts(lines: Lines, unreadable: list[int]) -> Texts:
    """Every line; of those that do not decode the number is noted, for their quotes still count."""
    for number, raw, text in lines.read(ROW_BYTES, "is a quote not closed?"):
        if text is None:
            unreadable.append(number)
            text = raw.decode("utf-8", "replace")
        yield number, text


def _choose_mark(header: str, usual: str, fits: Fits | None) -> str:
    """What separates the names of a header: the usual mark, or the only other one that gives the fields to read; where
    none does, the only one that divides it at all, so that a message can name the fields. Where it is not known what is
    to be read, the one that divides it most."""
    names = {mark: _split_header(header, mark) for mark in MARKS}
    several = [mark for mark in MARKS if len(names[mark]) > 1]
    if fits is None:
        return usual if usual in several or not several else max(several, key=lambda mark: len(names[mark]))
    fit = [mark for mark in MARKS if fits(names[mark])]
    if usual in fit or (usual in several and len(fit) != 1):
        return usual
    return fit[0] if len(fit) == 1 else several[0] if len(several) == 1 and not fit else usual


def _split_header(header: str, mark: str) -> list[str]:
    try:
        names = next(csv.reader([header], delimiter=mark), [])
    except csv.Error:
        names = header.split(mark)
    return [name.strip() for name in names]


def _read_csv_cells(texts: Texts, lines: Lines, mark: str, quoted: bool, unreadable: list[int]) -> Cells:
    """Cells by the rule of csv: a quoted one may hold marks and newlines; a quote in it is doubled. A row with a line
    that did not decode is left out."""
    last = 0  # the number of the last line that was taken

    def take() -> Iterator[str]:
        nonlocal last
        for number, text in texts:
            last = number
            yield text

    first = next(texts)
    texts, last = itertools.chain([first], texts), first[0] - 1
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(take(), delimiter=mark, strict=True, quoting=quoting)
    while True:
        begin = last + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            needed = "quotes around cells that hold marks or quotes, quotes inside quotes doubled, are needed"
            lines.refuse(begin, error, needed, f"mend the row{lines.remedy}")
            unreadable.clear()
            continue
        if cells and not unreadable:
            yield begin, cells
        unreadable.clear()


def _read_tab_cells(texts: Texts, lines: Lines) -> Cells:
    """Cells of a .tsv. Where quotes are the rule of csv, they are read so; otherwise they are characters like others,
    as in files that were written without them: an open quote is one where this line and the next are whole rows."""
    ahead = _Ahead(texts)
    width = 0
    while (taken := ahead.take()) is not None:
        number, line = taken
        cells = line.split("\t")
        if not line.strip(" "):
            continue
        if width and (len(cells) != width or (_is_open(cells[-1]) and ahead.width() not in (0, width))):
            over = _join_lines(line, ahead, width)
            if over is None and len(cells) != width:
                _refuse_uneven(lines, number, len(cells), width)
                continue
            cells = over or cells
        width = width or len(cells)
        yield number, [_unquote(cell) for cell in cells]


class _Ahead:
    """Lines that can be looked at before they are taken, or given back."""

    def __init__(self, texts: Texts):
        self._texts, self._back = texts, []

    def take(self) -> tuple[int, str] | None:
        """The next line, without its end; None where there is no more."""
        if self._back:
            return self._back.pop()
        line = next(self._texts, None)
        return None if line is None else (line[0], line[1].rstrip("\r\n"))

    def give_back(self, taken: list[tuple[int, str]]) -> None:
        """Lines that will be taken again."""
        self._back += reversed(taken)

    def width(self) -> int:
        """How many cells the next line has; 0 at the end."""
        line = self.take()
        self.give_back([] if line is None else [line])
        return 0 if line is None else line[1].count("\t") + 1


def _join_lines(line: str, ahead: _Ahead, width: int) -> list[str] | None:
    """Cells of which one holds tabs or newlines between its quotes; None, and no line taken, if there is none."""
    cells, taken = _split_tabs(line), []
    while (len(cells) < width or _is_open(cells[-1])) and _OPEN.search(line) and len(line) < OVER:
        more = ahead.take()
        if more is None:
            break
        taken.append(more)
        line += "\n" + more[1]
        if '"' in more[1]:
            cells = _split_tabs(line)
    if len(cells) == width and not _is_open(cells[-1]):
        return cells
    ahead.give_back(taken)
    return None


def _is_open(cell: str) -> bool:
    """Begun with a quote and not ended by one."""
    return cell.startswith('"') and not _QUOTED.fullmatch(cell)


def _split_tabs(line: str) -> list[str]:
    """Cells between tabs, but for those that stand in quotes."""
    cells, at = [], 0
    while at <= len(line):
        quoted = _QUOTED.match(line, at)
        end = quoted.end() if quoted else line.find("\t", at)
        end = len(line) if end < 0 else end
        cells.append(line[at:end])
        at = end + 1
    return cells


def _unquote(cell: str) -> str:
    quoted = _QUOTED.fullmatch(cell) if cell.startswith('"') else None
    return quoted[1].replace('""', '"') if quoted else cell


def _refuse_uneven(lines: Lines, number: int, cells: int, width: int) -> None:
    given = f"{pluralize(cells, 'cell')} under {pluralize(width, 'name')}"
    todo = f"mend the row{lines.remedy}: are there marks in a text that is not quoted?"
    lines.refuse(number, given, "one cell for each name in the first line is needed", todo)
