"""How well vectors agree with people: word pairs whose similarity was rated, and analogies that have an answer."""

import csv
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.data.records.compressed import open_bytes
from clozeworks.metrics.scores import pearson, spearman
from clozeworks.vectors.search import ROOM, cosines, unit
from clozeworks.vectors.table import Vectors, products

StrPath = str | os.PathLike[str]
TOTAL = "total"  # what all sections together are called
UNKNOWN = ("", "-", "?", "na", "n/a", "nan", "none", "null")  # ratings that are none
FIRST = 300_000  # words that are looked at, the most frequent


@dataclass(frozen=True, slots=True)
class Similarity:
    """Correlations of cosines with ratings over the pairs whose words have vectors; NaN where all are alike."""

    name: str
    spearman: float
    pearson: float
    covered: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Section:
    """Of `questions`, those `covered` have vectors for all four words, and so many are `right`."""

    name: str
    right: int
    covered: int
    questions: int

    @property
    def accuracy(self) -> float:
        return self.right / self.covered if self.covered else math.nan


@dataclass(frozen=True, slots=True)
class Analogies:
    """How many analogies of a file were right, section by section."""

    name: str
    method: str
    sections: list[Section]

    @property
    def total(self) -> Section:
        sums = (sum(getattr(each, part) for each in self.sections) for part in ("right", "covered", "questions"))
        return Section(TOTAL, *sums)


def similarity(vectors: Vectors, path: StrPath, first: int | None = FIRST, fold: bool = True) -> Similarity:
    """Cosines against the ratings of a file: a pair and a number on each line, see `read_pairs`.

    Looks among the `first` words. With `fold` capitals do not matter, and of several spellings the first counts.
    """
    pairs = read_pairs(path)
    places = _spellings(vectors, first, fold)
    placed = [(places.get(_folded(a, fold)), places.get(_folded(b, fold)), score) for a, b, score in pairs]
    known = [(a[0], b[0], score) for a, b, score in placed if a is not None and b is not None]
    name = Path(path).name
    if len({score for _, _, score in known}) < 2:  # nothing to agree with
        return Similarity(name, math.nan, math.nan, len(known), len(pairs))
    one, other, truth = zip(*known, strict=True)
    predicted = np.einsum("ij,ij->i", unit(vectors.table[list(one)]), unit(vectors.table[list(other)])).tolist()
    return Similarity(name, spearman(truth, predicted), pearson(truth, predicted), len(known), len(pairs))


def analogies(
    vectors: Vectors,
    path: StrPath,
    method: Literal["add", "multiply"] = "add",
    first: int | None = FIRST,
    fold: bool = True,
) -> Analogies:
    """What is to c as b is to a, for each line `a b c d` of a file; right is d and nothing else.

    The words of the question, in any spelling where `fold`, are no answers. See `Vectors.analogy` for the methods.
    """
    sections = read_questions(path)
    places = _spellings(vectors, first, fold)
    table, norms = vectors.table[:first], vectors.norms[:first]
    results = []
    for name, questions in sections:
        folded = [[_folded(word, fold) for word in question] for question in questions]
        known = [question for question in folded if all(word in places for word in question)]
        right, step = 0, max(ROOM // len(table), 1)
        for begin in range(0, len(known), step):
            block = known[begin : begin + step]
            scores = _scores(table, norms, [[places[word][0] for word in question[:3]] for question in block], method)
            for row, question in zip(scores, block, strict=True):
                row[[place for word in question[:3] for place in places[word]]] = -np.inf
            answers = scores.argmax(1).tolist()
            right += sum(answer in places[question[3]] for answer, question in zip(answers, block, strict=True))
        results.append(Section(name, right, len(known), len(questions)))
    return Analogies(Path(path).name, method, results)


def _scores(
    table: np.ndarray, norms: np.ndarray, questions: Sequence[Sequence[int]], method: Literal["add", "multiply"]
) -> np.ndarray:
    """[questions, words]."""
    a, b, c = (unit(table[[question[k] for question in questions]]) for k in range(3))
    if method == "add":
        return cosines(table, norms, b - a + c)
    if method != "multiply":
        raise InputError("method", method, "add or multiply is needed", "use add")
    return products(*((1 + cosines(table, norms, rows)) / 2 for rows in (a, b, c)))


def read_pairs(path: StrPath) -> list[tuple[str, str, float]]:
    """Two words and a rating on each line, with tabs, semicolons, commas or spaces between them, as in a CSV file.

    The words are the first two columns that are not all numbers, unless a first line names others (word1, word2); the
    rating is the first column of numbers behind them, 6.7 or 6,7. Lines that begin with # are passed over.
    """
    lines = _some([(number, line) for number, line in _lines(path) if not line.startswith("#")], path)
    between = next((mark for mark in "\t;," if len(_cells(lines[0][1], mark)) > 2), None)
    rows = [(number, line, _cells(line, between)) for number, line in lines]
    columns = _columns([cells for _, _, cells in rows])
    if columns is None:
        raise _unread(path, *rows[min(1, len(rows) - 1)][:2])
    first, second, score = columns
    head = rows[0][2]
    named = len(head) > score and _number(head[score]) is None and head[score].lower() not in UNKNOWN
    pairs: list[tuple[str, str, float]] = []
    for number, line, cells in rows[1 if named else 0 :]:
        value = _number(cells[score]) if len(cells) > score else None
        if value is None:
            raise _unread(path, number, line)
        pairs.append((cells[first], cells[second], value))
    return _some(pairs, path)


def _cells(line: str, between: str | None) -> list[str]:
    return line.split() if between is None else [cell.strip() for cell in next(csv.reader([line], delimiter=between))]


def _columns(rows: list[list[str]]) -> tuple[int, int, int] | None:
    """Where the words are, and the rating: a column of numbers has one in every second row at least."""
    met = [sum(len(row) > k and _number(row[k]) is not None for row in rows) for k in range(max(map(len, rows)))]
    numbers = [2 * count >= len(rows) for count in met]
    named = [k for k, name in enumerate(rows[0]) if re.fullmatch(r"word[ _-]?[12ab]", name.lower())]
    words = named if len(named) == 2 else [k for k, number in enumerate(numbers) if not number][:2]
    scores = [k for k, number in enumerate(numbers) if number and len(words) == 2 and k > words[1]]
    return (words[0], words[1], scores[0]) if scores else None


def _unread(path: StrPath, number: int, line: str) -> InputError:
    return InputError(f"{path} line {number}", repr(line[:60]), "two words and a number are needed", "mend it")


def read_questions(path: StrPath) -> list[tuple[str, list[list[str]]]]:
    """Four words on each line; a line that begins with a colon names what follows, one with # or // is passed over."""
    sections: dict[str, list[list[str]]] = {}
    name = "questions"
    for number, line in _lines(path):
        if line.startswith(("#", "//")):
            continue
        if line.startswith(":"):
            name = line[1:].strip()
            name = f"{name} (section)" if name == TOTAL else name
            continue
        if len(words := line.split()) != 4:
            raise InputError(f"{path} line {number}", repr(line[:60]), "four words are needed", "mend it")
        sections.setdefault(name, []).append(words)
    return _some(list(sections.items()), path)


def _lines(path: StrPath) -> Iterable[tuple[int, str]]:
    file = Path(path)
    if not file.is_file():
        raise InputError(path, "no such file", "rated words are needed", "check the path")
    with open_bytes(file) as (stream, _):
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise InputError(f"{path} line {number}", "bytes", "UTF-8 text is needed", "convert it") from None
            if line:
                yield number, line


def _some(entries: list[Any], path: StrPath) -> list[Any]:
    if not entries:
        raise InputError(path, "nothing in it", "rated words are needed", "check the file")
    return entries


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _folded(word: str, fold: bool) -> str:
    return word.upper() if fold else word


def _spellings(vectors: Vectors, first: int | None, fold: bool) -> dict[str, list[int]]:
    """The rows of each word, of several spellings the first before the others."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(vectors.words[:first]):
        places.setdefault(_folded(word, fold), []).append(place)
    return places
