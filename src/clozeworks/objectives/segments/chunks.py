"""Chunks: runs of sentences of about the target length of their document, divided into two sides that fit a row."""

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.objectives.segments.sentences import Sentences


def targets(documents: int, room: int, short: float, key: np.ndarray) -> np.ndarray:
    """The target length of each document: `room`, or with probability `short` uniform in [2, room]."""
    each = np.arange(documents)
    brief = 2 + counter_rng.below(room - 1, counter_rng.fold(key, "brief"), each)
    return np.where(counter_rng.uniform(counter_rng.fold(key, "short"), each) < short, brief, room)


def gather(sentences: Sentences, target: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Where chunks that begin at these sentences end: the target is reached, or the document is over."""
    document = sentences.document(begin)
    end = np.searchsorted(sentences.offsets, sentences.offsets[begin] + target[document])
    return np.maximum(np.minimum(end, sentences.documents[document + 1]), begin + 1)


def divide(begin: np.ndarray, end: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The sentence with which the second side of a chunk begins; `end` where there is one sentence only."""
    size = end - begin
    return begin + 1 + counter_rng.below(np.maximum(size - 1, 1), counter_rng.fold(key, "a"), begin) * (size > 1)


def shorten(a: np.ndarray, b: np.ndarray, room: int, keys: np.ndarray) -> None:
    """Trim [starts, ends] of both sides in place to `room` tokens: always the longer one, front or back by a coin."""
    size_a, size_b = a[1] - a[0], b[1] - b[0]
    excess = np.maximum(size_a + size_b - room, 0)
    # The longer side loses the difference first; then they take turns, B beginning at a tie.
    from_a = np.minimum(excess, np.maximum(size_a - size_b, 0))
    from_b = np.minimum(excess, np.maximum(size_b - size_a, 0))
    rest = excess - from_a - from_b
    from_a, from_b = from_a + rest // 2, from_b + rest - rest // 2
    for side, loss, site in ((a, from_a, "a"), (b, from_b, "b")):
        front = _heads(loss, counter_rng.fold(keys, site))
        side[0] += front
        side[1] -= loss - front


def _heads(coins: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """How many of `coins` fair coins show heads."""
    heads = np.zeros_like(coins)
    for word in range(-(-int(coins.max(initial=0)) // 64)):
        left = np.clip(coins - 64 * word, 0, 64)
        keep = np.where(
            left == 64, ~np.uint64(0), (np.uint64(1) << (left.astype(np.uint64) & np.uint64(63))) - np.uint64(1)
        )
        heads += np.bitwise_count(counter_rng.bits(keys, word) & keep).astype(np.int64)
    return heads
