"""What is hidden whole: tokens, words, annotated phrases and entities, as stretches of a ragged batch."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core.examples import RaggedBatch


@dataclass(frozen=True, slots=True)
class Units:
    """Unit u is the tokens at[u] : at[u] + size[u]; example i has the units first[i] : first[i + 1], in order.

    Together they are all tokens of the batch but the special ones, each once.
    """

    at: np.ndarray  # int64 [units]
    size: np.ndarray | None  # int64 [units]; None: single tokens
    first: np.ndarray  # int64 [examples + 1]

    @property
    def counts(self) -> np.ndarray:
        return self.first[1:] - self.first[:-1]

    @property
    def sizes(self) -> np.ndarray:
        return np.ones(len(self.at), dtype=np.int64) if self.size is None else self.size


def single(examples: RaggedBatch) -> Units:
    """Every token but the special ones."""
    special = np.flatnonzero(examples.special)
    return Units(np.flatnonzero(~examples.special), None, examples.first - np.searchsorted(special, examples.first))


def words(examples: RaggedBatch) -> Units:
    """Words as the tokenizer or a segmenter saw them."""
    return cut(examples, examples.word_starts)


def annotated(examples: RaggedBatch, marks: np.ndarray, start: int, inside: int) -> Units:
    """The annotated stretches whose bits are `start` and `inside`, words elsewhere. A stretch may end within a word."""
    begins = (marks & start) != 0
    member = begins | ((marks & inside) != 0)
    changes = np.ones(len(member), dtype=bool)
    changes[1:] = member[1:] != member[:-1]
    return cut(examples, begins | changes | (examples.word_starts & ~member))


def cut(examples: RaggedBatch, begins: np.ndarray) -> Units:
    """Units that begin where `begins` says; a special token, another segment or another example also ends one."""
    special = examples.special
    begins = begins | special
    begins[1:] |= special[:-1]
    begins[1:] |= examples.segment[1:] != examples.segment[:-1]
    begins[examples.first[:-1][examples.lengths > 0]] = True
    at = np.flatnonzero(begins)
    size = np.empty_like(at)
    np.subtract(at[1:], at[:-1], out=size[:-1])
    size[-1:] = len(begins) - at[-1:]
    ordinary = ~special[at]
    at, size = at[ordinary], size[ordinary]
    return Units(at, size, np.searchsorted(at, examples.first))


def joined(units: Units, segment: np.ndarray) -> np.ndarray:
    """[units] bool: the next unit follows at once, in the same segment of the same example."""
    after = np.zeros(len(units.at), dtype=bool)
    after[:-1] = units.at[:-1] + units.sizes[:-1] == units.at[1:]
    after[:-1] &= segment[units.at[:-1]] == segment[units.at[1:]]
    ends = units.first[1:][units.counts > 0] - 1
    after[ends] = False
    return after
