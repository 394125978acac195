"""Words that stand together more often than apart, joined: new york becomes new_york.

Paper: Mikolov et al. 2013, section 4. Two words a, b in a row are a phrase when their score is above a threshold:

    counts        (count(ab) - min_count) / (count(a) count(b)) * V
    npmi          log(p(ab) / (p(a) p(b))) / -log p(ab)        (Bouma 2009), from -1 to 1

with V the number of different words and pairs together, as gensim counts them. From left to right, what is a phrase is
joined and not looked at again. Passes after the first make longer ones; their thresholds may be lower.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.nn.kernels.compiled import compiled
from clozeworks.vectors.column import Column, Folder, pieces
from clozeworks.vectors.words import Words, ranked, renumbered

JOINT = "_"


@dataclass(frozen=True, slots=True)
class Phrases:
    """How phrases are found: `passes` times, with a threshold of its own for each if several are given."""

    min_count: int = 5
    threshold: float | tuple[float, ...] = 10.0
    score: Literal["counts", "npmi"] = "counts"
    passes: int = 1

    def __post_init__(self) -> None:
        if self.min_count < 1 or self.passes < 1:
            raise InputError("phrases", self, "min_count and passes are 1 or more", "leave them out")
        if isinstance(self.threshold, tuple) and len(self.threshold) != self.passes:
            given = f"{len(self.threshold)} thresholds for {self.passes} passes"
            raise InputError("phrases", given, "one threshold for all, or one for each is needed", "give one")
        if self.score not in ("counts", "npmi"):
            raise InputError("phrases", self.score, "the score is counts or npmi", "leave it out")
        for border in self.thresholds:
            if (self.score == "counts" and border <= 0) or (self.score == "npmi" and not -1 <= border <= 1):
                needed = "above 0 for counts, from -1 to 1 for npmi"
                raise InputError("threshold", border, needed, "10 is usual for counts, 0.5 for npmi")

    @property
    def thresholds(self) -> tuple[float, ...]:
        return self.threshold if isinstance(self.threshold, tuple) else (self.threshold,) * self.passes


def joined(words: Words, phrases: Phrases, folder: Folder = None) -> Words:
    """The same text with its phrases as words. No word may have been left out of it before (min_count 1)."""
    if len(words.ids) != words.read:
        given = f"{words.read - len(words.ids):,} rare words are left out"
        raise InputError("phrases", given, "words that stand together are needed", "read the text with min_count 1")
    for border in phrases.thresholds:
        words = _pass(words, phrases, border, folder)
    return words


def scored(words: Words, phrases: Phrases, border: float) -> dict[tuple[int, int], float]:
    """The pairs that are phrases, with their scores."""
    first, second, together = _pairs(words)
    single = words.counts.astype(np.int64)
    single, together, different = _merged(words, first, second, single, together)
    a, b = single[first].astype(np.float64), single[second].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        if phrases.score == "counts":
            score = (together - phrases.min_count) / (a * b) * different
        else:
            total = float(words.read)
            share = together / total
            score = np.log(share / (a / total * (b / total))) / -np.log(share)
            score[together < phrases.min_count] = -np.inf
    above = np.flatnonzero(score > border)
    keys = zip(first[above].tolist(), second[above].tolist(), strict=True)
    return dict(zip(keys, score[above].tolist(), strict=True))


def _pairs(words: Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each two words that stand in a row somewhere, and how often; counted piece by piece."""
    size = len(words)
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for piece in pieces(len(words.ids)):
        ids = words.ids[piece.start : piece.stop + 1].astype(np.int64)
        pair = ids[:-1] * size + ids[1:]
        ends = words.ends[np.searchsorted(words.ends, piece.start + 1) : np.searchsorted(words.ends, piece.stop + 1)]
        inside = np.ones(len(pair), bool)
        crossed = ends - piece.start - 1
        inside[crossed[crossed < len(pair)]] = False
        fresh, often = np.unique(pair[inside], return_counts=True)
        keys, where = np.unique(np.concatenate([keys, fresh]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([counts, often]), len(keys)).astype(np.int64)
    return keys // size, keys % size, counts


def _merged(
    words: Words, first: np.ndarray, second: np.ndarray, single: np.ndarray, together: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts by spelling: the word a_b and the pair a, b are one, and so are a_b, c and a, b_c."""
    names = words.words
    spelt = np.fromiter((JOINT in word for word in names), bool, len(names))
    if not spelt.any():
        return single, together, len(names) + len(together)
    number = {word: at for at, word in enumerate(names)}
    keys = first * len(names) + second
    touched = set(np.flatnonzero(spelt[first] | spelt[second]).tolist())
    for word in (names[at] for at in np.flatnonzero(spelt).tolist()):
        for cut in (at for at, letter in enumerate(word) if letter == JOINT):
            key = number.get(word[:cut], -1) * len(names) + number.get(word[cut + 1 :], -1)
            at = int(np.searchsorted(keys, key))
            if at < len(keys) and keys[at] == key and number.get(word[cut + 1 :], -1) >= 0:
                touched.add(at)
    totals: dict[str, int] = {names[at]: int(single[at]) for at in np.flatnonzero(spelt).tolist()}
    pairs = {at: f"{names[first[at]]}{JOINT}{names[second[at]]}" for at in touched}
    for at, name in pairs.items():
        totals[name] = totals.get(name, 0) + int(together[at])
    single, together = single.copy(), together.copy()
    for at in np.flatnonzero(spelt).tolist():
        single[at] = totals[names[at]]
    for at, name in pairs.items():
        together[at] = totals[name]
    return single, together, len(names) - int(spelt.sum()) + len(together) - len(pairs) + len(totals)


def _pass(words: Words, phrases: Phrases, border: float, folder: Folder) -> Words:
    pairs = scored(words, phrases, border)
    if not pairs:
        return words
    names = list(words.words)
    number = {word: at for at, word in enumerate(names)}
    keys, values = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int32)
    for at, (a, b) in enumerate(sorted(pairs)):
        name = f"{words.words[a]}{JOINT}{words.words[b]}"
        if name not in number:
            number[name] = len(names)
            names.append(name)
        keys[at], values[at] = a * len(words) + b, number[name]
    ids, ends = Column(np.int32, folder), Column(np.int64, folder)
    counts = np.zeros(len(names), np.int64)
    last = 0
    for begin, end in _stretches(words):
        stops = np.asarray(words.ends[begin:end]) - last
        made, made_ends = _join(np.asarray(words.ids[last : last + int(stops[-1])]), stops, keys, values, len(words))
        ends.append(made_ends + ids.size)
        ids.append(made)
        counts += np.bincount(made, minlength=len(names))
        last += int(stops[-1])
    order, sorted_counts, rank = ranked(names, counts, 1, None)
    stream = renumbered(ids.array(), ends.array(), rank, folder)
    return Words(order, sorted_counts, *stream, len(stream[0]))


def _stretches(words: Words) -> list[tuple[int, int]]:
    """Sentences [begin, end), about a piece of a column each."""
    marks = [piece.stop for piece in pieces(len(words.ids))]
    borders = np.unique([0, *np.searchsorted(words.ends, marks, side="right"), len(words.ends)]).tolist()
    return list(itertools.pairwise(borders))


@compiled
def _join(ids, ends, keys, values, size):
    """A stretch with its phrases joined, and the new ends of its sentences."""
    made, stops = np.empty(len(ids), np.int32), np.empty(len(ends), np.int64)
    count, at = 0, 0
    for sentence in range(len(ends)):
        end = ends[sentence]
        while at < end:
            made[count] = ids[at]
            if at + 1 < end:
                key = np.int64(ids[at]) * size + ids[at + 1]
                place = np.searchsorted(keys, key)
                if place < len(keys) and keys[place] == key:
                    made[count] = values[place]
                    at += 1
            count += 1
            at += 1
        stops[sentence] = count
    return made[:count], stops
