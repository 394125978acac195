"""Word vectors as an artefact: a table that outlives its trainer, with exact search."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.vectors.formats import files
from clozeworks.vectors.formats.stored import Errors, Stored
from clozeworks.vectors.search import best, cosines, nearest, norms_of, unit

StrPath = str | os.PathLike[str]
Item = str | np.ndarray  # a word, or a vector

SMALL = 1e-6  # keeps a product of similarities from being divided by nothing


@dataclass(slots=True, eq=False)
class Vectors(Stored):
    """A row for each word. `vectors["word"]` is its row, `vectors[["two", "words"]]` rows; words stand in their order.

    >>> vectors = load_vectors("wiki.safetensors")
    >>> vectors.most_similar("king", top=3)
    >>> vectors.analogy("man", "king", "woman")
    """

    places: dict[str, int] = field(init=False, repr=False)
    _norms: np.ndarray | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.words, self.table = list(self.words), np.asanyarray(self.table)
        if self.table.ndim != 2 or len(self.table) != len(self.words) or not self.table.size:
            given = f"{len(self.words):,} words and a table of shape {self.table.shape}"
            raise InputError("vectors", given, "a row for each word is needed", "check what was given")
        if self.table.dtype != np.float32:
            self.table = self.table.astype(np.float32)
        if self.counts is not None and len(self.counts) != len(self.words):
            given = f"{len(self.words):,} words and {len(self.counts):,} counts"
            raise InputError("vectors", given, "a count for each word is needed", "check what was given")
        self.places = {word: place for place, word in enumerate(self.words)}
        if len(self.places) < len(self.words):
            twice = next(word for place, word in enumerate(self.words) if self.places[word] != place)
            raise InputError("vectors", f"{twice} a second time", "each word has one vector", "leave one out")

    @property
    def dim(self) -> int:
        return self.table.shape[1]

    @property
    def norms(self) -> np.ndarray:
        """Lengths of the rows [n], counted once; 1 for a row of zeros."""
        if self._norms is None:
            self._norms = norms_of(self.table)
        return self._norms

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """A row [D] of one word, rows [m, D] of several."""
        return self.table[self.place(words) if isinstance(words, str) else [self.place(word) for word in words]]

    def place(self, word: str) -> int:
        """Which row is the word's; one that has none is refused, with the spelling that has one."""
        if (place := self.places.get(word)) is not None:
            return place
        close = next((other for other in (word.lower(), word.title(), word.upper()) if other in self.places), None)
        todo = f"did you mean {close}?" if close else "try another word"
        raise InputError(word or "''", "no vector", f"a word among the {len(self):,} is needed", todo)

    def similarity(self, one: Item, other: Item) -> float:
        """The cosine of two words or vectors."""
        a, b = unit(self._row(one))[0], unit(self._row(other))[0]
        return float(a @ b)

    def distance(self, one: Item, other: Item) -> float:
        """1 - cosine."""
        return 1.0 - self.similarity(one, other)

    def nearest(self, matrix: np.ndarray, top: int = 10, first: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows nearest to each row of a matrix [m, D]: their numbers and their cosines, both [m, top], best first.

        `first` looks among so many words only, the most frequent where words are in that order.
        """
        matrix = np.atleast_2d(np.asarray(matrix, np.float32))
        self._fits(matrix)
        _positive(top=top, first=first)
        return nearest(self.table[:first], self.norms[:first], matrix, top)

    def most_similar(
        self,
        positive: Item | Sequence[Item],
        negative: Item | Sequence[Item] = (),
        top: int = 10,
        first: int | None = None,
    ) -> list[tuple[str, float]]:
        """Words nearest to the sum of the positive less the negative; those given are left out.

        A word counts with its direction, a vector as it is.
        """
        _positive(top=top)
        plus, minus = _listed(positive), _listed(negative)
        if not plus and not minus:
            raise InputError("most_similar", "no word and no vector", "at least one is needed", "give a word")
        signs = np.array([1] * len(plus) + [-1] * len(minus), np.float32)
        rows = [self._row(item) if isinstance(item, np.ndarray) else unit(self[item])[0] for item in (*plus, *minus)]
        wanted = signs @ np.stack(rows)
        if not np.abs(wanted).max() > 1e-6:
            raise InputError("most_similar", "words that cancel each other", "a direction is needed", "leave one out")
        given = self._given(plus, minus)
        ids, scores = self.nearest(wanted, top + len(given), first)
        return self._without(ids[0], scores[0], given, top)

    def analogy(
        self,
        a: str,
        b: str,
        c: str,
        top: int = 10,
        method: Literal["add", "multiply"] = "add",
        first: int | None = None,
    ) -> list[tuple[str, float]]:
        """What is to c as b is to a. Paper: Levy & Goldberg 2014.

        add: argmax cos(x, b - a + c). multiply: argmax s(x, b) s(x, c) / (s(x, a) + 1e-6), s = (1 + cos) / 2, in which
        no single large similarity decides alone.
        """
        if method == "add":
            return self.most_similar([b, c], [a], top, first)
        if method != "multiply":
            raise InputError("method", method, "add or multiply is needed", "use add")
        _positive(top=top, first=first)
        rows = unit(self[[a, b, c]])
        scores = products(*((1 + cosines(self.table[:first], self.norms[:first], rows)) / 2))
        given = self._given([a, b, c], [])
        ids = best(scores[None], top + len(given))[0]
        return self._without(ids, scores[ids], given, top)

    def save(self, path: StrPath, header: bool = True) -> None:
        """As the ending says: .safetensors, .bin or .txt; see `formats.files`."""
        files.write(path, self, header)

    def _row(self, item: Item) -> np.ndarray:
        if isinstance(item, str):
            return self.table[self.place(item)]
        row = np.asarray(item, np.float32)
        if row.ndim != 1:
            raise InputError("a vector", f"shape {row.shape}", f"{self.dim} numbers are needed", "give one row")
        self._fits(row[None])
        return row

    def _fits(self, matrix: np.ndarray) -> None:
        if matrix.shape[1] != self.dim:
            todo = "give vectors of these words"
            raise InputError("a vector", f"{matrix.shape[1]} numbers", f"{self.dim} are needed", todo)

    def _given(self, plus: Sequence[Item], minus: Sequence[Item]) -> set[int]:
        return {self.place(item) for item in (*plus, *minus) if isinstance(item, str)}

    def _without(self, ids: np.ndarray, scores: np.ndarray, without: set[int], top: int) -> list[tuple[str, float]]:
        pairs = zip(ids.tolist(), scores.tolist(), strict=True)
        return [(self.words[place], score) for place, score in pairs if place not in without][:top]


def _positive(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(name, value, "1 or more is needed", "leave it out")


def products(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Similarities in [0, 1] to the three words of an analogy, as one score."""
    return b * c / (a + np.float32(SMALL))


def load_vectors(path: StrPath, limit: int | None = None, mapped: bool = False, errors: Errors = "strict") -> Vectors:
    """Vectors of a file: safetensors, text or binary, whatever its name; see `files.read`."""
    stored = files.read(path, limit, mapped, errors)
    return Vectors(**{each.name: getattr(stored, each.name) for each in fields(Stored)})


def _listed(given: Item | Sequence[Item]) -> list[Item]:
    if isinstance(given, str) or (isinstance(given, np.ndarray) and given.ndim == 1):
        return [given]
    return list(given)
