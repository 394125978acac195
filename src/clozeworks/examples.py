"""Examples before they are tensors: plans over a corpus, and ragged batches of numpy columns.

An example is always  [CLS] piece [SEP] piece [SEP] ...  where a piece is a stretch of the corpus. A plan says which
stretches; `assemble` reads them. Nothing here is random.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

NOTHING = -100  # a label where nothing is predicted

Take = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What data preparation must know of a tokenizer."""

    size: int
    pad: int
    cls: int
    sep: int
    mask: int
    special: tuple[int, ...]


@dataclass(slots=True)
class Plan:
    """The examples of one epoch as stretches of the corpus."""

    starts: np.ndarray  # [pieces] token offsets
    ends: np.ndarray
    segment: np.ndarray  # [pieces] int8
    first: np.ndarray  # [examples + 1]: the pieces of example i are first[i] : first[i + 1]
    fields: dict[str, np.ndarray] = field(default_factory=dict)  # [examples]: pair_label, ...

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, specials included."""
        ends = np.concatenate([[0], np.cumsum(self.ends - self.starts + 1)])
        return 1 + ends[self.first[1:]] - ends[self.first[:-1]]


@dataclass(slots=True)
class Ragged:
    """Examples laid end to end; example i has the tokens first[i] : first[i + 1]."""

    tokens: np.ndarray  # int32
    first: np.ndarray  # int64
    segment: np.ndarray  # int8
    special: np.ndarray  # bool: [CLS], [SEP]
    word_starts: np.ndarray  # bool
    labels: np.ndarray  # int32, NOTHING where nothing is predicted
    sentence_starts: np.ndarray | None = None
    fields: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.first)

    @property
    def example(self) -> np.ndarray:
        """[tokens]: which example a token belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def position(self) -> np.ndarray:
        """[tokens]: where a token stands in its example."""
        return np.arange(len(self.tokens)) - np.repeat(self.first[:-1], self.lengths)


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ranges starts[i] : starts[i] + lengths[i], one after another."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def assemble(
    plan: Plan, chosen: np.ndarray, take: Take, vocabulary: Vocabulary, sentences: np.ndarray | None = None
) -> Ragged:
    """Read the chosen examples. `sentences` (the corpus's sentence offsets) adds the sentence column."""
    counts = plan.first[chosen + 1] - plan.first[chosen]
    pieces = ragged_arange(plan.first[chosen], counts)
    starts, ends = plan.starts[pieces], plan.ends[pieces]
    lengths = ends - starts
    words, word_starts = take(starts, ends)
    # Every piece is followed by [SEP]; the first piece of an example is preceded by [CLS].
    leads = np.zeros(len(pieces), dtype=np.int64)
    leads[np.cumsum(counts) - counts] = 1
    sizes = leads + lengths + 1
    piece_first = np.concatenate([[0], np.cumsum(sizes)])
    tokens = np.full(piece_first[-1], vocabulary.sep, dtype=np.int32)
    special = np.ones(len(tokens), dtype=bool)
    tokens[piece_first[:-1][leads == 1]] = vocabulary.cls
    inside = ragged_arange(piece_first[:-1] + leads, lengths)
    tokens[inside], special[inside] = words, False
    columns = {"word_starts": word_starts}
    if sentences is not None:
        low, high = np.searchsorted(sentences, starts), np.searchsorted(sentences, ends)
        at = ragged_arange(low, high - low)
        marks = np.zeros(len(words), dtype=bool)
        begin = np.cumsum(lengths) - lengths
        marks[sentences[at] - np.repeat(starts - begin, high - low)] = True
        columns["sentence_starts"] = marks
    spread = {name: np.zeros(len(tokens), dtype=bool) for name in columns}
    for name, column in columns.items():
        spread[name][inside] = column
    first = (
        np.concatenate([[0], np.cumsum(np.add.reduceat(sizes, np.cumsum(counts) - counts))])
        if len(chosen)
        else np.zeros(1, np.int64)
    )
    return Ragged(
        tokens=tokens,
        first=first,
        segment=np.repeat(plan.segment[pieces], sizes),
        special=special,
        labels=np.full(len(tokens), NOTHING, dtype=np.int32),
        fields={name: values[chosen] for name, values in plan.fields.items()},
        **spread,
    )
