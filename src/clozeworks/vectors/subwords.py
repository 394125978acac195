"""Vectors of stretches of letters, so that a word that was never met has a vector too.

Paper: Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information". A word is the mean of a row of its own
and of the rows of its n-grams, 3 to 6 letters of `<word>`, which share rows by a hash (FNV-1a, as fastText has it) into
so many buckets. Skip-gram predicts the words around from the mean of the middle one; CBOW the middle one from the mean
of all rows around; the gradient goes in full to each row.

Departure: only buckets that a word of the text falls into have rows. The others would keep the numbers they begin with,
which tell nothing; a word that was never met is the mean of those of its n-grams that were.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.nn.kernels.compiled import compiled
from clozeworks.vectors.table import Vectors

BUCKETS, ROWS = "gram_buckets", "gram_table"  # how they are stored beside the words


@dataclass(frozen=True, slots=True)
class Subwords:
    """N-grams of `shortest` to `longest` letters in so many buckets."""

    shortest: int = 3
    longest: int = 6
    buckets: int = 2_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            given = f"{self.shortest} to {self.longest} letters"
            raise InputError("subwords", given, "1 or more, in rising order, are needed", "3 to 6 are usual")
        if not 1 <= self.buckets <= 2**31 - 1:
            raise InputError("subwords", f"{self.buckets} buckets", "from 1 to 2^31 - 1 are needed", "leave it out")


class Parts(NamedTuple):
    """The rows of word n: rows[starts[n] : starts[n + 1]], its own first, then its n-grams."""

    starts: np.ndarray  # int64 [V + 1]
    rows: np.ndarray  # int64
    buckets: np.ndarray  # int64, sorted: row V + k is that of buckets[k]

    @property
    def most(self) -> int:
        return int(np.diff(self.starts).max())


def grams_of(words: Sequence[str], subwords: Subwords) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of the n-grams of each word, end to end, and where each word's begin and end."""
    spelt = [f"<{word}>".encode(errors="surrogatepass") for word in words]
    ends = np.cumsum([0, *map(len, spelt)])
    letters = np.frombuffer(b"".join(spelt), np.uint8)
    given = letters, ends, subwords.shortest, subwords.longest, np.uint64(subwords.buckets)
    starts = np.zeros(len(words) + 1, np.int64)
    _grams(*given, starts, np.zeros(0, np.int64))
    grams = np.empty(int(starts[-1]), np.int64)
    _grams(*given, starts, grams)
    return grams, starts


def parts_of(words: Sequence[str], subwords: Subwords) -> Parts:
    """Which rows each word is the mean of."""
    grams, starts = grams_of(words, subwords)
    buckets, places = np.unique(grams, return_inverse=True)
    rows = np.insert(places + len(words), starts[:-1], np.arange(len(words)))
    return Parts(starts + np.arange(len(words) + 1), rows.astype(np.int64), buckets)


def composed(table: np.ndarray, parts: Parts) -> np.ndarray:
    """The mean of the rows of each word, float32 [V, D]."""
    sums = np.zeros((len(parts.starts) - 1, table.shape[1]), np.float32)
    _sums(table, parts.starts, parts.rows, sums)
    return sums / np.diff(parts.starts).astype(np.float32)[:, None]


def vector_of(vectors: Vectors, word: str) -> np.ndarray:
    """The row of a word, or of one that has none, the mean of its n-grams that were met."""
    if word in vectors:
        return vectors[word]
    settings = vectors.about.get("settings", {}).get("subwords")
    if not settings or BUCKETS not in vectors.more:
        todo = "train with subwords for words that were never met"
        raise InputError(word or "''", "no vector", f"a word among the {len(vectors):,} is needed", todo)
    grams, _ = grams_of([word], Subwords(**settings))
    buckets = vectors.more[BUCKETS]
    places = np.searchsorted(buckets, grams)
    known = places[buckets[np.minimum(places, len(buckets) - 1)] == grams]
    if not len(known):
        needed = "letters that the text has are needed"
        raise InputError(word or "''", "none of its n-grams was met", needed, "try another word")
    return vectors.more[ROWS][known].mean(0)


@compiled
def _grams(letters, ends, shortest, longest, buckets, starts, grams):
    """Fill `starts` with sums of counts; with room in `grams`, the buckets as well."""
    count = 0
    for word in range(len(ends) - 1):
        begin, end = ends[word], ends[word + 1]
        for first in range(begin, end):
            if letters[first] & 0xC0 == 0x80:  # inside a letter
                continue
            at, length = first, 0
            bits = np.uint64(2166136261)
            while at < end and length < longest:
                start = True
                while at < end and (start or letters[at] & 0xC0 == 0x80):
                    byte = np.uint64(letters[at])
                    if byte >= np.uint64(128):  # a signed byte to the authors' program
                        byte |= np.uint64(0xFFFFFF00)
                    bits = ((bits ^ byte) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)
                    at += 1
                    start = False
                length += 1
                if length >= shortest and not (length == 1 and (first == begin or at == end)):
                    if len(grams):
                        grams[count] = np.int64(bits % buckets)
                    count += 1
        starts[word + 1] = count


@compiled
def _sums(table, starts, rows, sums):
    for word in range(len(starts) - 1):
        for at in range(starts[word], starts[word + 1]):
            row = rows[at]
            for n in range(table.shape[1]):
                sums[word, n] += table[row, n]
