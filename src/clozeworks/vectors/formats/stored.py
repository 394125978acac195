"""What a file of vectors holds, and how rows of one are gathered and checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal

import numpy as np

from clozeworks.core.errors import InputError

Errors = Literal["strict", "skip"]
LONGEST = 1 << 16  # bytes of a word: what is longer is not a file of vectors
BREAKS = frozenset(" \t\n\r\v\f")  # what no word may hold: files in text have no other sign between two fields
MEND = "mend it, or leave such rows out: clozeworks vectors convert FILE NEW --errors skip"


@dataclass(slots=True)
class Stored:
    """n words, a row of D numbers for each; perhaps how often each was met, and the table of the other side.

    `more` holds tensors that only their method understands; `about` says where the rows come from.
    """

    words: list[str]
    table: np.ndarray  # float32 [n, D]
    counts: np.ndarray | None = None  # int64 [n]
    output: np.ndarray | None = None  # float32 [m, D]: n contexts, or the inner nodes of a tree
    about: dict[str, Any] = field(default_factory=dict)
    more: dict[str, np.ndarray] = field(default_factory=dict)

    def select(self, rows: slice | np.ndarray) -> "Stored":
        """Some of the rows; `more` and a tree's `output` are of all words, so they are left behind."""
        words = self.words[rows] if isinstance(rows, slice) else list(compress(self.words, rows))
        by_word = self.output is not None and len(self.output) == len(self.words)
        output = self.output[rows] if by_word and self.output is not None else None
        counts = None if self.counts is None else self.counts[rows]
        return Stored(words, self.table[rows], counts, output, dict(self.about))


class Gathered:
    """Rows on their way from a file into one table: each word once, every number finite."""

    def __init__(self, name: object, dim: int, expected: int | None, limit: int | None, errors: Errors):
        self.name, self.dim, self.errors = name, dim, errors
        self.limit = min((each for each in (limit, expected) if each is not None), default=None)
        self.words: dict[str, int] = {}  # in order; and the row or line of each
        self.table = np.empty((1024 if expected is None else self.limit or 0, dim), np.float32)
        self.skipped = 0

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.words) >= self.limit

    def add(self, words: Sequence[bytes], rows: np.ndarray, numbers: Sequence[int], place: str = "line") -> None:
        """Rows [len(words), D] with where they stand in the file."""
        sound = np.asarray(np.isfinite(rows).all(1))
        keep: list[int] = []
        for k, (raw, number) in enumerate(zip(words, numbers, strict=True)):
            if self.full:
                break
            try:
                self.words[self._word(raw, f"{self.name} {place} {number:,}", bool(sound[k]))] = number
            except InputError:
                if self.errors == "strict":
                    raise
                self.skipped += 1
            else:
                keep.append(k)
        begin, end = len(self.words) - len(keep), len(self.words)
        if end > len(self.table):
            grown = np.empty((max(end, len(self.table) * 3 // 2), self.dim), np.float32)
            grown[:begin] = self.table[:begin]
            self.table = grown
        self.table[begin:end] = rows if len(keep) == len(rows) else rows[keep]

    def refuse(self, number: int, given: str, needed: str) -> None:
        """A row that is not one: refused, or counted."""
        if self.errors == "strict":
            raise InputError(f"{self.name} line {number:,}", given, needed, MEND)
        self.skipped += 1

    def finish(self) -> Stored:
        words = list(self.words)
        if not words:
            raise InputError(self.name, "no vectors in it", "a word and its numbers on each line", "check the file")
        table = self.table[: len(words)]
        table = table if len(table) == len(self.table) else table.copy()
        return Stored(words, table, about={"skipped": self.skipped} if self.skipped else {})

    def _word(self, raw: bytes, where: str, sound: bool) -> str:
        if len(raw) > LONGEST:
            raise InputError(where, f"a word of {len(raw):,} bytes", "a file of vectors is needed", "check the file")
        try:
            word = raw.decode()
        except UnicodeDecodeError:
            shown = raw.decode(errors="replace")
            raise InputError(where, f"{shown}, which is not UTF-8", "UTF-8 text is needed", MEND) from None
        if not word or BREAKS.intersection(word):
            raise InputError(where, f"the word {word!r}", "words have letters and no spaces", MEND)
        if word in self.words:
            raise InputError(where, f"{word} a second time", "each word has one vector", MEND)
        if not sound:
            raise InputError(where, f"a number of {word} is not finite", "NaN and infinity are no vectors", MEND)
        return word
