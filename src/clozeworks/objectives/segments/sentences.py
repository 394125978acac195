"""The sentences that examples are made of, and walks over them that never hold more than a block at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.core.examples import ragged_arange
from clozeworks.objectives.objective import Text

BLOCK = 1 << 16  # sentences looked at together: bounds the memory of a walk, whatever the corpus


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences that are not empty, in documents that are not empty."""

    offsets: np.ndarray  # [S + 1] token offsets
    documents: np.ndarray  # [D + 1] sentence offsets

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def document(self, sentence: np.ndarray) -> np.ndarray:
        """Which document a sentence belongs to."""
        return np.searchsorted(self.documents, sentence, side="right") - 1


def cut(text: Text, longest: int, piece: int, even: bool = False) -> Sentences:
    """The sentences of a text, those longer than `longest` cut into pieces of `piece`, or of equal size up to it."""
    offsets, documents = text.sentences, text.documents
    lengths = np.diff(offsets)
    if not lengths.all():
        kept = np.concatenate([[0], np.cumsum(lengths > 0)])
        documents = kept[documents]
        offsets, lengths = np.append(offsets[:-1][lengths > 0], offsets[-1]), lengths[lengths > 0]
    if not len(lengths):
        raise InputError("data", "no tokens", "at least one sentence is needed", "prepare a corpus with text in it")
    if not np.diff(documents).all():
        documents = np.unique(documents)
    long = np.flatnonzero(lengths > longest)
    if len(long):
        parts = -(-lengths[long] // piece)
        more = parts - 1
        within = ragged_arange(np.ones_like(more), more)
        inside = within * np.repeat(lengths[long], more) // np.repeat(parts, more) if even else within * piece
        del lengths
        added = np.concatenate([[0], np.cumsum(more)])
        documents = documents + added[np.searchsorted(long, documents)]
        offsets = np.insert(offsets, np.repeat(long + 1, more), np.repeat(offsets[long], more) + inside)
    return Sentences(offsets, documents)


def follow(following: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
    """The chain 0, f(0), f(f(0)), ... below `count`; f is asked about neighbouring sentences, a block at a time."""
    chain, at = [], 0
    while at < count:
        begin, end, starts = at, min(at + BLOCK, count), []
        steps = following(np.arange(begin, end)).tolist()
        while at < end:
            starts.append(at)
            at = steps[at - begin]
        chain.append(np.array(starts, dtype=np.int64))
    return np.concatenate(chain)


def elsewhere(sentences: Sentences, begin: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each sentence a random sentence of a random other document, and the end of that document."""
    documents = sentences.documents
    chosen = counter_rng.below(len(documents) - 2, counter_rng.fold(key, "other"), begin)
    chosen += chosen >= sentences.document(begin)
    low, high = documents[chosen], documents[chosen + 1]
    return low + counter_rng.below(high - low, counter_rng.fold(key, "start"), begin), high


def need_documents(sentences: Sentences) -> None:
    """Refuse a corpus that has no second document to draw from."""
    if len(sentences.documents) < 3:
        needed = "sentence pairs need a second document to draw from"
        todo = "separate documents by a blank line, or use a recipe without pairs such as roberta_mini"
        raise InputError("data", "one document", needed, todo)
