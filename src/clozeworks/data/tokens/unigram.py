"""Training of a unigram language model over pieces (Kudo 2018, arXiv:1804.10959), the same in every process.

The trainer of `tokenizers` walks over a randomly seeded hash table, so its scores differ from run to run; this one
works on sorted arrays. Each distinct run of letters is a lattice; all lattices are walked at once, a column a step:

    forward_e = sum over pieces of length n that end at e of p(piece) * forward_{e - n}

Expectation gives each piece its expected count c, maximisation p = exp(digamma(c) - digamma(sum)); then the pieces
whose loss would cost least, c * (log p - log p of spelling it with others), go. Where we depart: the count is the
expected one rather than that of the best path, and the other spelling is summed over rather than the best one.
Runs have at most `LONGEST_RUN` characters, which bounds the work a character and keeps the products above 1e-300.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

LONGEST_PIECE = 16  # characters, as in SentencePiece
LONGEST_RUN = 24
CHARACTERS = 3_000_000  # of distinct runs; the rarest runs beyond are left out
SEEDS = 10  # pieces to begin with, for each to end with
FEWEST_SEEDS = 20_000
KEPT = 0.75  # share of the pieces that a round keeps
FLOOR = 1e-12


@dataclass(frozen=True)
class _Columns:
    """Every substring of many strings, by (length n, begin b): at `first[n, b] + r` is that of string r.

    The strings stand longest first, so those long enough for (n, b) are the first `count(b + n)`.
    """

    pieces: np.ndarray  # int32, the piece spelt there, or the number of pieces where none is
    first: np.ndarray  # int64 [n, b]
    active: np.ndarray  # how many strings have at least this length

    def at(self, n: int, b: int) -> np.ndarray:
        begin = self.first[n, b]
        return self.pieces[begin : begin + self.active[b + n]]


def train(counts: dict[str, int], alphabet: Iterable[str], size: int) -> list[tuple[str, float]]:
    """Pieces and log probabilities, the most likely first: the alphabet and the best longer ones, `size` in all."""
    letters = sorted(set(alphabet))
    runs, weights = _chosen(counts, set(letters))
    columns, pieces = _seeds(runs, weights, letters, max(SEEDS * size, FEWEST_SEEDS))
    strings = letters + [runs[r][b : b + n] for n, b, r in zip(*(part[len(letters) :] for part in pieces), strict=True)]
    own = _within(columns, len(strings), *pieces)
    probability = _maximised(np.bincount(columns.pieces, minlength=len(strings) + 1)[:-1].astype(float))
    living = np.ones(len(strings), bool)
    while True:
        expected = probability
        for _ in range(2):
            expected = _expected(columns, weights, probability, len(strings))
            probability = np.where(living, _maximised(np.where(living, expected, 0)), 0)
        left = int(living.sum())
        if left <= size:
            break
        keep = max(size, int(left * KEPT))
        loss = _loss(own, pieces[0], probability, expected)
        loss[: len(letters)] = np.inf
        loss[~living] = -np.inf
        order = np.lexsort((np.arange(len(loss)), -np.round(loss, 6)))
        living[order[max(keep, len(letters)) :]] = False
        probability = np.where(living, probability, 0)
        if max(keep, len(letters)) == left:
            break
    scores = {strings[index]: round(float(np.log(probability[index])), 6) for index in np.flatnonzero(living)}
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _chosen(counts: dict[str, int], letters: set[str]) -> tuple[list[str], np.ndarray]:
    """The most frequent runs of known letters, longest first, and how often each stands in the text."""
    known: dict[str, int] = {}
    for run, count in counts.items():
        for part in _known_parts(run, letters):
            known[part] = known.get(part, 0) + count
    room, chosen = CHARACTERS, []
    for run in sorted(known, key=lambda run: (-known[run], run)):
        room -= len(run)
        if room < 0:
            break
        chosen.append(run)
    chosen.sort(key=lambda run: (-len(run), run))
    return chosen, np.array([known[run] for run in chosen], float)


def _known_parts(run: str, letters: set[str]) -> list[str]:
    if letters.issuperset(run):
        return [run[at : at + LONGEST_RUN] for at in range(0, len(run), LONGEST_RUN)]
    parts = "".join(letter if letter in letters else "\0" for letter in run).split("\0")
    return [piece for part in parts if part for piece in _known_parts(part, letters)]


def _layout(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """`first` and `active` of strings with these lengths, longest first, and the number of substrings."""
    longest = int(lengths[0]) if len(lengths) else 0
    active = np.array([int((lengths >= length).sum()) for length in range(longest + 1)], np.int64)
    first = np.full((LONGEST_PIECE + 1, longest + 1), -1, np.int64)
    total = 0
    for n in range(1, min(LONGEST_PIECE, longest) + 1):
        for b in range(longest - n + 1):
            first[n, b] = total
            total += int(active[b + n])
    return first, active, total


def _seeds(
    runs: list[str], weights: np.ndarray, letters: list[str], most: int
) -> tuple[_Columns, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All letters, and the longer substrings with the most text: their places (length, begin, run) in the columns."""
    lengths = np.fromiter(map(len, runs), np.int64, len(runs))
    first, active, total = _layout(lengths)
    numbers = np.full(total, -1, np.int32)
    number = {letter: index for index, letter in enumerate(letters)}
    longest = len(active) - 1
    for b in range(longest):
        column = [number[run[b]] for run in runs[: active[b + 1]]]
        numbers[first[1, b] : first[1, b] + len(column)] = column
    places, worth = [], []
    fresh = len(letters)
    for n in range(2, min(LONGEST_PIECE, longest) + 1):
        keys, heavy, begins, rows = [], [], [], []
        for b in range(longest - n + 1):
            count = active[b + n]
            head = numbers[first[n - 1, b] : first[n - 1, b] + count].astype(np.int64)
            tail = numbers[first[n - 1, b + 1] : first[n - 1, b + 1] + count]
            last = numbers[first[1, b + n - 1] : first[1, b + n - 1] + count]
            row = np.flatnonzero((head >= 0) & (tail >= 0))
            keys.append(head[row] * len(letters) + last[row])
            heavy.append(weights[row])
            begins.append(np.full(len(row), b))
            rows.append(row)
        key, begin, row = np.concatenate(keys), np.concatenate(begins), np.concatenate(rows)
        if not len(key):
            break
        _, at, inverse = np.unique(key, return_index=True, return_inverse=True)
        often = np.bincount(inverse, np.concatenate(heavy))
        frequent = often >= 2
        identity = np.where(frequent, fresh + np.cumsum(frequent) - 1, -1)
        numbers[first[n][begin] + row] = identity[inverse]
        at = at[frequent]
        places.append(np.stack([np.full(len(at), n), begin[at], row[at]]))
        worth.append(often[frequent] * n)
        fresh += len(at)
    empty = np.zeros((3, 0), np.int64)
    place = np.concatenate([empty, *places], 1)
    value = np.concatenate([np.zeros(0), *worth])
    best = np.sort(np.lexsort((np.arange(len(value)), -value))[:most])
    renamed = np.full(fresh + 1, len(letters) + len(best), np.int32)  # the last entry answers for -1
    renamed[: len(letters)] = np.arange(len(letters))
    renamed[len(letters) + best] = len(letters) + np.arange(len(best))
    alone = np.stack([np.ones(len(letters)), np.zeros(len(letters)), np.zeros(len(letters))])
    n, b, r = np.concatenate([alone, place[:, best]], 1).astype(np.int64)
    return _Columns(renamed[numbers], first, active), (n, b, r)


def _within(
    columns: _Columns, none: int, lengths: np.ndarray, begins: np.ndarray, rows: np.ndarray
) -> tuple[_Columns, np.ndarray]:
    """The columns of the pieces themselves, without each piece as a whole, and the order in which they stand."""
    order = np.argsort(-lengths, kind="stable")
    first, active, total = _layout(lengths[order])
    pieces = np.full(total, none, np.int32)
    for n in range(1, len(active)):
        for b in range(len(active) - n):
            chosen = order[: active[b + n]]
            inside = lengths[chosen] > n
            chosen = chosen[inside]
            places = columns.first[n][begins[chosen] + b] + rows[chosen]
            pieces[first[n, b] + np.flatnonzero(inside)] = columns.pieces[places]
    return _Columns(pieces, first, active), order


def _forward(columns: _Columns, probability: np.ndarray) -> list[np.ndarray]:
    padded = np.append(probability, 0.0)
    active = columns.active
    forward = [np.ones(active[0]), *(np.zeros(count) for count in active[1:])]
    for e in range(1, len(active)):
        for n in range(1, min(LONGEST_PIECE, e) + 1):
            forward[e] += forward[e - n][: active[e]] * padded[columns.at(n, e - n)]
    return forward


def _expected(columns: _Columns, weights: np.ndarray, probability: np.ndarray, size: int) -> np.ndarray:
    """How often each piece is expected in the text, over all ways to spell it."""
    padded = np.append(probability, 0.0)
    forward, active = _forward(columns, probability), columns.active
    longest = len(active) - 1
    backward = [np.zeros(count) for count in active]
    for e in range(longest + 1):
        ending = slice(active[e + 1] if e < longest else 0, active[e])
        backward[e][ending] = weights[ending] / np.maximum(forward[e][ending], 1e-300)
    counts = np.zeros(size + 1)
    for b in range(longest - 1, -1, -1):
        for n in range(1, min(LONGEST_PIECE, longest - b) + 1):
            pieces = columns.at(n, b)
            after = padded[pieces] * backward[b + n]
            backward[b][: len(after)] += after
            counts += np.bincount(pieces, forward[b][: len(after)] * after, size + 1)
    return counts[:-1]


def _maximised(counts: np.ndarray) -> np.ndarray:
    known = np.maximum(counts, 1e-3)
    return np.maximum(np.exp(_digamma(known) - _digamma(np.array([known.sum()]))), FLOOR)


def _loss(
    own: tuple[_Columns, np.ndarray], lengths: np.ndarray, probability: np.ndarray, expected: np.ndarray
) -> np.ndarray:
    columns, order = own
    forward = _forward(columns, probability)
    other = np.zeros(len(order))
    for length in range(1, len(forward)):
        ends = np.flatnonzero(lengths[order] == length)
        other[order[ends]] = forward[length][ends]
    return expected * (np.log(np.maximum(probability, 1e-300)) - np.log(np.maximum(other, 1e-300)))


def _digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of log gamma: moved up by its recurrence to where the asymptotic series is exact to 1e-12."""
    result = np.zeros_like(x)
    x = x.copy()
    for _ in range(8):
        small = x < 8
        result -= np.where(small, 1 / x, 0)
        x += small
    inverse = 1 / (x * x)
    return result + np.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
