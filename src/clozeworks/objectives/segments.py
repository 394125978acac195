"""How documents become examples. A plan touches no token: it works on sentence offsets, all examples at once."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks import draws
from clozeworks.errors import InputError
from clozeworks.examples import Plan, ragged_arange
from clozeworks.objectives.objective import Segments, Text


@dataclass(slots=True)
class SegmentPair(Segments):
    """Two runs of sentences; half of the second ones come from another document (Devlin et al. 2018, A.2).

    The algorithm of the released code: a document has a target length (length - 3; with probability `short` uniform
    in [2, length - 3]); sentences are gathered until they reach it; A takes a random number of them; B is the rest
    (pair_label 0) or, half of the time and whenever there is only one sentence, a run from another document
    (pair_label 1), and then the unused sentences are used again. The longer side loses tokens from its front or
    back until both fit. Departures: the other document is never the same one (the original tries ten times), and a
    sentence longer than the target is first cut into halves of it, where the original drops what does not fit.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    short: float = 0.1

    def plan(self, text: Text, key: np.ndarray) -> Plan:
        room = self.length - 3
        sentences, document = cut(text, room, (room + 1) // 2)
        count = len(sentences) - 1
        documents = np.concatenate([[0], np.flatnonzero(np.diff(document)) + 1, [count]])
        if len(documents) < 3:
            raise InputError(
                "data",
                "one document",
                "sentence pairs need a second document to draw from",
                "separate documents by a blank line, or use a recipe without pairs such as roberta_mini",
            )
        target = self._targets(len(documents) - 1, room, key)[
            np.repeat(np.arange(len(documents) - 1), np.diff(documents))
        ]

        # For each sentence, what a chunk that begins there would be; then follow the chain of chunks that do begin.
        begin = np.arange(count)
        document_end = np.repeat(documents[1:], np.diff(documents))
        chunk_end = np.minimum(np.searchsorted(sentences, sentences[:-1] + target), document_end)
        chunk_end = np.maximum(chunk_end, begin + 1)
        size = chunk_end - begin
        a_size = 1 + draws.below(np.maximum(size - 1, 1), draws.fold(key, "a"), begin) * (size > 1)
        other = (size == 1) | (draws.uniform(draws.fold(key, "next"), begin) < 0.5)
        begin = follow(np.where(other, begin + a_size, chunk_end), count)

        a_end, other, chunk_end = begin + a_size[begin], other[begin], chunk_end[begin]
        a = np.stack([sentences[begin], sentences[a_end]])
        b = np.stack([sentences[np.minimum(a_end, count)], sentences[chunk_end]])
        b[:, other] = self._elsewhere(
            sentences, documents, begin[other], target[begin[other]] - (a[1] - a[0])[other], key
        )
        _shorten(a, b, room, draws.fold(key, "shorten", begin))
        return Plan(
            starts=np.stack([a[0], b[0]], 1).ravel(),
            ends=np.stack([a[1], b[1]], 1).ravel(),
            segment=np.tile(np.array([0, 1], dtype=np.int8), len(begin)),
            first=np.arange(0, 2 * len(begin) + 1, 2),
            fields={"pair_label": other.astype(np.int64)},
        )

    def _targets(self, documents: int, room: int, key: np.ndarray) -> np.ndarray:
        each = np.arange(documents)
        brief = 2 + draws.below(room - 1, draws.fold(key, "brief"), each)
        return np.where(draws.uniform(draws.fold(key, "short"), each) < self.short, brief, room)

    def _elsewhere(
        self, sentences: np.ndarray, documents: np.ndarray, begin: np.ndarray, room: np.ndarray, key: np.ndarray
    ) -> np.ndarray:
        """For each chunk a run of at least `room` tokens from a random sentence of another document."""
        own = np.searchsorted(documents, begin, side="right") - 1
        chosen = draws.below(len(documents) - 2, draws.fold(key, "other"), begin)
        chosen += chosen >= own
        low, high = documents[chosen], documents[chosen + 1]
        start = low + draws.below(high - low, draws.fold(key, "start"), begin)
        end = np.searchsorted(sentences, sentences[start] + np.maximum(room, 1))
        return np.stack([sentences[start], sentences[np.minimum(end, high)]])


@dataclass(slots=True)
class FullSentences(Segments):
    """Whole sentences in order until the row is full, over document borders, with one more [SEP] at each border
    (Liu et al. 2019, 4.2). A sentence longer than a row is cut; nothing is dropped."""

    def plan(self, text: Text, key: np.ndarray) -> Plan:
        room = self.length - 2
        sentences, document = cut(text, room, room)
        count = len(sentences) - 1
        # Offsets in a stream where each document border costs one token more.
        stream_start, stream_end = sentences[:-1] + document, sentences[1:] + document
        ends = np.searchsorted(stream_end, stream_start + room, side="right")
        begin = follow(ends, count)
        end = np.append(begin[1:], count)
        pieces = document[end - 1] - document[begin] + 1
        borders = np.concatenate([[0], np.flatnonzero(np.diff(document)) + 1, [count]])
        of = ragged_arange(document[begin], pieces)
        owner = np.repeat(np.arange(len(begin)), pieces)
        return Plan(
            starts=sentences[np.maximum(borders[of], begin[owner])],
            ends=sentences[np.minimum(borders[of + 1], end[owner])],
            segment=np.zeros(len(of), dtype=np.int8),
            first=np.concatenate([[0], np.cumsum(pieces)]),
        )


def cut(text: Text, longest: int, piece: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentence offsets with those longer than `longest` cut into pieces of `piece`, and each one's document."""
    lengths = np.diff(text.sentences)
    document = np.repeat(np.arange(len(text.documents) - 1), np.diff(text.documents))
    starts, document, lengths = text.sentences[:-1][lengths > 0], document[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        raise InputError("data", "no tokens", "at least one sentence is needed", "prepare a corpus with text in it")
    document = np.cumsum(np.diff(document, prepend=document[0]) > 0)  # numbered without gaps
    parts = np.where(lengths > longest, -(-lengths // piece), 1)
    within = ragged_arange(np.zeros_like(parts), parts)
    starts = np.repeat(starts, parts) + within * piece
    return np.append(starts, text.sentences[-1]), np.repeat(document, parts)


def follow(following: np.ndarray, end: int) -> np.ndarray:
    """The chain 0, following[0], following[following[0]], ... below `end`."""
    chain, steps, at = [], following.tolist(), 0
    while at < end:
        chain.append(at)
        at = steps[at]
    return np.array(chain, dtype=np.int64)


def _shorten(a: np.ndarray, b: np.ndarray, room: int, keys: np.ndarray) -> None:
    """Trim [starts, ends] of both sides in place to `room` tokens: always the longer one, front or back by a coin."""
    size_a, size_b = a[1] - a[0], b[1] - b[0]
    excess = np.maximum(size_a + size_b - room, 0)
    # The longer side loses the difference first; then they take turns, B beginning at a tie.
    from_a = np.minimum(excess, np.maximum(size_a - size_b, 0))
    from_b = np.minimum(excess, np.maximum(size_b - size_a, 0))
    rest = excess - from_a - from_b
    from_a, from_b = from_a + rest // 2, from_b + rest - rest // 2
    for side, loss, site in ((a, from_a, "a"), (b, from_b, "b")):
        front = _heads(loss, draws.fold(keys, site))
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
        heads += np.bitwise_count(draws.bits(keys, word) & keep).astype(np.int64)
    return heads
