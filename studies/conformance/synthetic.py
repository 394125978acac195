"""Text that has every border and no meaning, the same bit for bit on any machine: what conformance is measured on.

Documents, sentences and words have about the sizes of English articles in word pieces; tokens follow Zipf's law; some
words are annotated as phrases and entities. Every draw is a pure function of the seed (`draws`), through tables and
divisions only, so that no library or processor can change it.
"""

from dataclasses import dataclass

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.examples import (
    ENTITY_INSIDE,
    ENTITY_START,
    PHRASE_INSIDE,
    PHRASE_START,
    Columns,
    Vocabulary,
    ragged_arange,
)

SPECIAL = 5
SIZE = 2000
Bins = tuple[tuple[int, int, int], ...]  # least, most, and how many of a thousand; uniform between
SENTENCES: Bins = ((1, 1, 80), (2, 4, 220), (5, 9, 250), (10, 24, 280), (25, 59, 140), (60, 150, 30))  # of a document
WORDS: Bins = ((1, 4, 60), (5, 9, 140), (10, 19, 360), (20, 29, 260), (30, 49, 150), (50, 119, 30))  # of a sentence
TOKENS: Bins = ((1, 1, 780), (2, 2, 130), (3, 3, 60), (4, 4, 20), (5, 7, 10))  # of a word
STARTS = np.uint8(PHRASE_START | ENTITY_START)
BLOCK = 4  # of so many words the first ones may be a phrase or an entity


@dataclass(frozen=True)
class Synthetic:
    """A corpus in memory."""

    tokens: np.ndarray
    word_starts: np.ndarray
    units: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray

    @staticmethod
    def make(documents: int, seed: int, sides: bool = False) -> "Synthetic":
        """So many documents; `sides`: of two sentences each."""
        key = counter_rng.fold(seed, "synthetic")
        sentences = np.full(documents, 2) if sides else _sizes(SENTENCES, documents, counter_rng.fold(key, "sentences"))
        words = _sizes(WORDS, int(sentences.sum()), counter_rng.fold(key, "words"))
        sizes = _sizes(TOKENS, int(words.sum()), counter_rng.fold(key, "tokens"))
        begins = np.append(0, np.cumsum(sizes))
        starts = np.zeros(begins[-1], dtype=bool)
        starts[begins[:-1]] = True
        marks = _units(words, counter_rng.fold(key, "units"))[np.cumsum(starts) - 1]
        shares = np.cumsum(1 / (np.arange(SIZE - SPECIAL) + 3.0))
        drawn = counter_rng.uniform(counter_rng.fold(key, "zipf"), np.arange(begins[-1]))
        return Synthetic(
            tokens=(SPECIAL + np.searchsorted(shares / shares[-1], drawn, side="right")).astype(np.int32),
            word_starts=starts,
            units=np.where(starts, marks & ~((marks & STARTS) << 1), marks & ~STARTS),
            sentences=begins[np.append(0, np.cumsum(words))],
            documents=np.append(0, np.cumsum(sentences)),
        )

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        return Columns(self.tokens[at], self.word_starts[at], self.units[at])

    def unigram(self) -> np.ndarray:
        return np.bincount(self.tokens, minlength=SIZE)


def vocabulary() -> Vocabulary:
    return Vocabulary(SIZE, pad=0, cls=2, sep=3, mask=4, special=tuple(range(SPECIAL)))


def _sizes(bins: Bins, count: int, key: np.ndarray) -> np.ndarray:
    least, most, weight = np.array(bins).T
    each = np.arange(count)
    of = np.searchsorted(np.cumsum(weight), counter_rng.below(1000, counter_rng.fold(key, "bin"), each), side="right")
    return least[of] + counter_rng.below((most - least + 1)[of], counter_rng.fold(key, "within"), each)


def _units(words: np.ndarray, key: np.ndarray) -> np.ndarray:
    """[words] bits: where a word begins or continues a phrase (two to four words) or an entity (one to three)."""
    place = ragged_arange(np.zeros_like(words), words)
    block = np.cumsum(place % BLOCK == 0) - 1
    inside = place % BLOCK
    marks = np.zeros(len(place), dtype=np.uint8)
    kinds = ((PHRASE_START, PHRASE_INSIDE, 200, 2, "phrase"), (ENTITY_START, ENTITY_INSIDE, 120, 1, "entity"))
    for start, on, chance, least, name in kinds:
        each = np.arange(block[-1] + 1)
        there = counter_rng.below(1000, counter_rng.fold(key, name), each) < chance
        size = np.where(there, least + counter_rng.below(3, counter_rng.fold(key, name, "size"), each), 0)[block]
        marks[(inside == 0) & (size > 0)] |= start | on
        marks[(inside > 0) & (inside < size)] |= on
    return marks
