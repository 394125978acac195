"""How often two words stand near each other, counted over any text in bounded memory.

Pairs of frequent words have a cell each in one array; the others go through a hash table, which is written to disk,
sorted, whenever it is full. In the end the sorted runs are merged, and pairs are put into random order on the way.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.vectors.column import IN_MEMORY, Column, Folder
from clozeworks.vectors.words import Progress, Words

MEMORY = 1 << 29  # bytes
LEAST = 1 << 20
BLOCK = 1 << 22  # pairs that are shuffled together
PIECE = 1 << 10  # pairs of a run looked at together, at least
STRIDE = 1 << 18  # words counted between two reports

_Run = tuple[np.ndarray, np.ndarray]  # keys, rising; and a sum for each


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of words (their numbers) with the sum of 1 / distance over the text, each pair once, in random order.

    With `both`, X_ij = X_ji is one pair, the lower number first, and `values` has X_ij. Without, `first` stands to the
    left of `second`.
    """

    first: np.ndarray  # int32 [pairs], in memory or mapped from disk
    second: np.ndarray
    values: np.ndarray  # float32
    both: bool
    words: int

    def __len__(self) -> int:
        return len(self.first)


def count(
    words: Words,
    window: int = 15,
    both: bool = True,
    even: bool = False,
    memory: int = MEMORY,
    folder: Folder = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Pairs:
    """Pairs at most `window` words apart in one sentence; words that did not stay in the vocabulary take no place.

    A pair weighs 1 / distance, or with `even` 1. `memory` bounds what is held, in bytes.
    """
    if window < 1:
        raise InputError("window", window, "1 or more is needed", "15 is usual")
    if memory < LEAST:
        raise InputError("memory", memory, f"{LEAST:,} bytes or more are needed", f"use {MEMORY:,}")
    weights = np.ones(window + 1)
    if not even:
        weights[1:] /= np.arange(1, window + 1)
    report = progress or (lambda stage, done, total: None)
    runs = _counted(words, weights, both, memory, folder, report)
    return _shuffled(runs, len(words), both, memory, folder, np.random.default_rng(seed), report)


def _counted(
    words: Words, weights: np.ndarray, both: bool, memory: int, folder: Folder, report: Progress
) -> list[_Run]:
    """A sixth of the memory is for the cells and one for the table; its way to the disk takes three times as much."""
    from clozeworks.vectors.kernels.pairs import EMPTY, count_pairs

    vocab = len(words)
    starts, widths, cells = _cells(vocab, both, memory // 6 // 8)
    dense = np.zeros(cells)
    slots = 1 << max((memory // 6 // 16).bit_length() - 1, (4 * len(weights)).bit_length())  # a power of two
    keys, values = np.full(slots, EMPTY, np.int64), np.zeros(slots)
    room = slots * 7 // 8
    ids, ends = np.asarray(words.ids), np.asarray(words.ends)
    runs: list[_Run] = []
    at = sentence = 0
    free = room
    while sentence < len(ends):
        until = np.searchsorted(ends, at + STRIDE, side="right") + 1  # whole sentences
        at, sentence, free = count_pairs(
            ids, ends[:until], at, sentence, weights, both, vocab, dense, starts, widths, keys, values, free
        )
        if sentence < min(until, len(ends)):
            runs.append(_emptied(keys, values, folder, 0))
            free = room
        report("pairs", at, len(ids))
    runs.append(_emptied(keys, values, folder, memory // 16))
    del keys, values
    return [_listed(dense, starts, both, folder, memory // 16), *runs]


def _cells(vocab: int, both: bool, most: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Of each word a, which numbers b have a cell: those with (a + 1)(b + 1) small, words being in order of frequency.

    starts[a] + b is the cell of (a, b), for b < widths[a]; where `both`, b >= a.
    """
    ranks = np.arange(1, vocab + 1)

    def layout(product: int) -> tuple[np.ndarray, np.ndarray]:
        widths = np.minimum(product // ranks, vocab)
        begins = np.minimum(ranks - 1, widths) if both else np.zeros(vocab, np.int64)
        return widths, begins

    def size(product: int) -> int:
        widths, begins = layout(product)
        return int((widths - begins).sum())

    widths, begins = layout(bisect.bisect_right(range(vocab * vocab + 1), most, key=size) - 1)
    offsets = np.concatenate([[0], np.cumsum(widths - begins)])
    starts = offsets[:-1] - (ranks - 1 if both else 0)
    return starts, widths, int(offsets[-1])


class _PairColumns:
    """Keys and the sum of each, in files beyond `held` bytes."""

    def __init__(self, folder: Folder, held: int):
        self._columns = Column(np.int64, folder, held), Column(np.float64, folder, held)

    def append(self, keys: np.ndarray, values: np.ndarray) -> None:
        self._columns[0].append(keys)
        self._columns[1].append(values)

    def arrays(self) -> _Run:
        return self._columns[0].array(), self._columns[1].array()


def _listed(dense: np.ndarray, starts: np.ndarray, both: bool, folder: Folder, held: int) -> _Run:
    """The cells that count anything, in order of their keys."""
    kept = _PairColumns(folder, held)
    begins = starts + (np.arange(len(starts)) if both else 0)
    step = max(held // 8, 1)
    for begin in range(0, len(dense), step):
        cell = begin + np.flatnonzero(dense[begin : begin + step])
        row = np.searchsorted(begins, cell, side="right") - 1
        kept.append(row * len(starts) + (cell - starts[row]), dense[cell])
    return kept.arrays()


def _emptied(keys: np.ndarray, values: np.ndarray, folder: Folder, held: int) -> _Run:
    """What a table holds, in order of its keys; the table is empty afterwards."""
    used = np.flatnonzero(keys >= 0)
    used = used[np.argsort(keys[used])]
    kept = _PairColumns(folder, held)
    kept.append(keys[used], values[used])
    keys[used], values[used] = -1, 0
    return kept.arrays()


def merged(runs: Sequence[_Run], room: int) -> Iterator[_Run]:
    """Sorted runs as one, in pieces of about `room` pairs; sums of the same key are added."""
    runs = [run for run in runs if len(run[0])]
    places = [0] * len(runs)
    step = max(room // max(len(runs), 1), PIECE)
    while any(place < len(keys) for place, (keys, _) in zip(places, runs, strict=True)):
        left = [(place, keys) for place, (keys, _) in zip(places, runs, strict=True) if place < len(keys)]
        border = min(keys[min(place + step, len(keys)) - 1] for place, keys in left)
        parts: list[_Run] = []
        for which, (keys, values) in enumerate(runs):
            place = places[which]
            stop = place + int(np.searchsorted(keys[place : place + step], border, side="right"))
            parts.append((keys[place:stop], values[place:stop]))
            places[which] = stop
        keys, values = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        yield keys[begins], np.add.reduceat(values, begins)


def _shuffled(
    runs: Sequence[_Run],
    vocab: int,
    both: bool,
    memory: int,
    folder: Folder,
    rng: np.random.Generator,
    report: Progress,
) -> Pairs:
    """Each pair goes into one of several heaps by lot, and each heap is shuffled: a random order of all of them."""
    total = sum(len(keys) for keys, _ in runs)
    if not total:
        given, todo = "no two words stand in one sentence", "give more text, or a smaller min_count"
        raise InputError("text", given, "pairs of words are needed", todo)
    heaps = -(-total // min(BLOCK, max(memory // 4 // 32, 1)))
    held = memory // 4 // heaps // 2
    piles = [_PairColumns(folder, held) for _ in range(heaps)]
    done = 0
    for keys, values in merged(runs, memory // 4 // 48):
        lot = rng.integers(heaps, size=len(keys))
        order = np.argsort(lot, kind="stable")
        stops = np.searchsorted(lot[order], np.arange(heaps + 1))
        for heap, (begin, end) in enumerate(pairwise(stops)):
            piles[heap].append(keys[order[begin:end]], values[order[begin:end]])
        done += len(keys)
        report("merge", done, total)
    held = min(IN_MEMORY, memory // 16)
    first, second, sums = (Column(dtype, folder, held) for dtype in (np.int32, np.int32, np.float32))
    while piles:
        keys, values = piles.pop().arrays()
        order = rng.permutation(len(keys))
        keys = keys[order]
        first.append(keys // vocab)
        second.append(keys % vocab)
        sums.append(values[order])
    report("merge", total, total)
    return Pairs(first.array(), second.array(), sums.array(), both, vocab)
