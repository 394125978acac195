"""Examples made by hand from the sizes of their words, and what to ask of them when they come back corrupted."""

import numpy as np
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.examples import NOTHING, RaggedBatch, Vocabulary
from clozeworks.objectives.mask.masking import Masking

COUNTS = np.append(np.zeros(5, dtype=np.int64), np.arange(995, 0, -1))
VOCABULARY = Vocabulary(1000, pad=0, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4), counts=COUNTS)
Layout = list[list[list[int]]]  # examples of pieces of words, a word given by its tokens

# [CLS] piece [SEP] piece [SEP]; an example without a piece is [CLS] alone
layouts = st.lists(
    st.lists(st.lists(st.integers(1, 6), min_size=0, max_size=25), min_size=0, max_size=3), min_size=1, max_size=6
)


def lay(layout: Layout, seed: int = 0, bare: bool = False, times: int = 1) -> RaggedBatch:
    """The examples, their tokens drawn at random, so many times over; `bare` ones have no special tokens."""
    tokens, first, segment, special, starts = [], [0], [], [], []
    generator = np.random.default_rng(seed)

    def put(token: int, piece: int, is_special: bool, starts_word: bool) -> None:
        tokens.append(token)
        segment.append(piece % 2)
        special.append(is_special)
        starts.append(starts_word)

    for pieces in layout:
        if not bare:
            put(VOCABULARY.cls, 0, True, False)
        for number, words in enumerate(pieces):
            for size in words:
                for place in range(size):
                    put(int(generator.integers(5, VOCABULARY.size)), number, False, place == 0)
            if not bare:
                put(VOCABULARY.sep, number, True, False)
        first.append(len(tokens))
    return RaggedBatch(
        tokens=np.tile(np.array(tokens, dtype=np.int32), times),
        first=np.append(0, np.cumsum(np.tile(np.diff(first), times))).astype(np.int64),
        segment=np.tile(np.array(segment, dtype=np.int8), times),
        special=np.tile(np.array(special, dtype=bool), times),
        word_starts=np.tile(np.array(starts, dtype=bool), times),
        labels=np.full(len(tokens) * times, NOTHING, dtype=np.int32),
    )


def corrupt(corruption: Masking, clean: RaggedBatch, seed: int = 0) -> RaggedBatch:
    return corruption.corrupt(clean, counter_rng.fold(seed, np.arange(len(clean))), VOCABULARY)


def chosen_of(hidden: RaggedBatch) -> list[np.ndarray]:
    """[examples] of bool [tokens]: what is to be predicted."""
    return np.split(hidden.labels != NOTHING, hidden.first[1:-1])


def flags(layout: Layout, hidden: RaggedBatch) -> list[list[list[list[bool]]]]:
    """Whether each token is predicted, in the shape of the layout: [example][piece][word][token]."""
    out = []
    for pieces, chosen in zip(layout, chosen_of(hidden), strict=True):
        at, results = 1, []
        for words in pieces:
            results.append([])
            for size in words:
                results[-1].append(chosen[at : at + size].tolist())
                at += size
            at += 1
        out.append(results)
    return out


def budget_of(pieces: list[list[int]], rate: float = 0.15, most: int | None = None) -> int:
    """round(rate * length with specials), at least 1, at most what there is."""
    available = sum(map(sum, pieces))
    return min(max(1, round(rate * (available + 1 + len(pieces)))), most or available, available)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Standard deviations above its mean (degrees of freedom: one less than the cells)."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


def runs(chosen: list[bool]) -> list[int]:
    """Lengths of the runs of True."""
    out, length = [], 0
    for each in [*chosen, False]:
        if each:
            length += 1
        elif length:
            out.append(length)
            length = 0
    return out


def alike(ours: np.ndarray, plain: np.ndarray) -> None:
    """Two samples [examples, features] whose means agree within their standard errors, each and together."""
    error = np.sqrt(ours.var(axis=0) / len(ours) + plain.var(axis=0) / len(plain)) + 1e-9
    z = (ours.mean(axis=0) - plain.mean(axis=0)) / error
    assert np.abs(z).max() < 4, z
    assert np.sqrt((z**2).mean()) < 2, z
