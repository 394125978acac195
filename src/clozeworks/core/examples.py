"""Examples before they are tensors: plans over a corpus, and ragged batches of numpy columns.

An example is  [CLS] piece [SEP] piece [SEP] ...  where a piece is a stretch of the corpus. A plan says which stretches,
and may leave out a [CLS] or [SEP]; `assemble` reads them. Where its field `backward` says so, each piece of an example
is turned round, with its specials: the plan lists them as they are read. Nothing here is random.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

NOTHING = -100  # a label where nothing is predicted
BORDER, END = -1, -2  # what may follow an example besides a token of the corpus

# What a token is in an annotated unit, as bits of the column `units`.
PHRASE_START, PHRASE_INSIDE, ENTITY_START, ENTITY_INSIDE = 1, 2, 4, 8


class Columns(NamedTuple):
    """Stretches of a corpus end to end."""

    tokens: np.ndarray  # int32
    word_starts: np.ndarray  # bool
    units: np.ndarray | None = None  # uint8, bits as above; None where the text was not annotated


Take = Callable[[np.ndarray, np.ndarray], Columns]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What data preparation must know of a tokenizer."""

    size: int
    pad: int
    cls: int
    sep: int
    mask: int
    special: tuple[int, ...]
    counts: np.ndarray | None = field(default=None, compare=False)  # int64 [size]: how often the corpus has each token


@dataclass(slots=True)
class ExamplePlan:
    """The examples of one epoch as stretches of the corpus."""

    starts: np.ndarray  # [pieces] token offsets
    ends: np.ndarray
    segment: np.ndarray  # [pieces] int8
    first: np.ndarray  # [examples + 1]: the pieces of example i are first[i] : first[i + 1]
    fields: dict[str, np.ndarray] = field(default_factory=dict)  # [examples]: pair_label, backward, ...
    opened: np.ndarray | None = None  # [pieces] bool: [CLS] before it; None: before the first piece of each example
    closed: np.ndarray | None = None  # [pieces] bool: [SEP] after it; None: after every piece
    in_order: bool = False  # the examples are read one after another, never shuffled or packed
    follows: np.ndarray | None = None  # [examples] offset of the token after each: BORDER a [SEP], END nothing

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, specials included."""
        return self.lengths_of(np.arange(len(self)))

    def lengths_of(self, chosen: np.ndarray) -> np.ndarray:
        """Tokens of some examples, specials included."""
        counts = self.first[chosen + 1] - self.first[chosen]
        ends = np.concatenate([[0], np.cumsum(self.sizes(ragged_arange(self.first[chosen], counts)))])
        last = np.cumsum(counts)
        return ends[last] - ends[last - counts] + (self.opened is None)

    def sizes(self, pieces: np.ndarray) -> np.ndarray:
        """Tokens of each piece with the specials that the plan names for it (not with the implied [CLS])."""
        size = self.ends[pieces] - self.starts[pieces]
        size = size + (1 if self.closed is None else self.closed[pieces])
        return size if self.opened is None else size + self.opened[pieces]


@dataclass(slots=True)
class RaggedBatch:
    """Examples end to end; example i has the tokens first[i] : first[i + 1]."""

    tokens: np.ndarray  # int32
    first: np.ndarray  # int64
    segment: np.ndarray  # int8
    special: np.ndarray  # bool: [CLS], [SEP]
    word_starts: np.ndarray  # bool
    labels: np.ndarray  # int32, NOTHING where nothing is predicted
    units: np.ndarray | None = None  # uint8
    sentence_starts: np.ndarray | None = None
    fields: dict[str, np.ndarray] = field(default_factory=dict)
    span: np.ndarray | None = None  # int32: the number of a hidden span in its example, -1 outside
    order: np.ndarray | None = None  # int32: a token sees those of its example whose number is not above its own
    marked: np.ndarray | None = None  # bool: tokens that see and are seen from afar
    following: np.ndarray | None = None  # int32 [examples]: the token after each, for a corruption to look at

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> np.ndarray:
        return self.first[1:] - self.first[:-1]

    @property
    def example(self) -> np.ndarray:
        """[tokens]: which example a token belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def position(self) -> np.ndarray:
        """[tokens]: where a token stands in its example."""
        return np.arange(len(self.tokens)) - np.repeat(self.first[:-1], self.lengths)

    def spans(self, at: int) -> list[tuple[int, int]]:
        """The hidden spans of one example, [begin, end) in its own positions."""
        if self.span is None:
            return []
        inside = self.span[self.first[at] : self.first[at + 1]]
        places = [np.flatnonzero(inside == number) for number in range(inside.max(initial=-1) + 1)]
        return [(int(each[0]), int(each[-1]) + 1) for each in places]


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ranges starts[i] : starts[i] + lengths[i], one after another."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def assemble(
    plan: ExamplePlan, chosen: np.ndarray, take: Take, vocabulary: Vocabulary, sentences: np.ndarray | None = None
) -> RaggedBatch:
    """Read the chosen examples. `sentences` (the corpus's sentence offsets) adds the sentence column."""
    counts = plan.first[chosen + 1] - plan.first[chosen]
    pieces = ragged_arange(plan.first[chosen], counts)
    starts, ends = plan.starts[pieces], plan.ends[pieces]
    lengths = ends - starts
    taken = take(starts, ends)
    if plan.opened is None:
        leads = np.zeros(len(pieces), dtype=np.int64)
        leads[(np.cumsum(counts) - counts)[counts > 0]] = 1
    else:
        leads = plan.opened[pieces].astype(np.int64)
    sizes = leads + lengths + (1 if plan.closed is None else plan.closed[pieces])
    piece_first = np.concatenate([[0], np.cumsum(sizes)])
    tokens = np.full(piece_first[-1], vocabulary.sep, dtype=np.int32)
    special = np.ones(len(tokens), dtype=bool)
    tokens[piece_first[:-1][leads == 1]] = vocabulary.cls
    inside = ragged_arange(piece_first[:-1] + leads, lengths)
    tokens[inside], special[inside] = taken.tokens, False
    columns = {"word_starts": taken.word_starts}
    if taken.units is not None:
        columns["units"] = taken.units
    turned = plan.fields["backward"][chosen].repeat(counts) if "backward" in plan.fields else None  # pieces
    if turned is not None:
        last = np.cumsum(lengths)[lengths > 0] - 1
        columns = {name: _read_backward(column, last, turned.repeat(lengths)) for name, column in columns.items()}
    if sentences is not None:
        # Read backward a sentence begins at its last token, the one before the next sentence.
        back = 0 if turned is None else turned.astype(np.int64)
        low, high = np.searchsorted(sentences, starts + back), np.searchsorted(sentences, ends + back)
        at = ragged_arange(low, high - low)
        marks = np.zeros(len(taken.tokens), dtype=bool)
        begin = np.cumsum(lengths) - lengths
        marks[sentences[at] - np.repeat(starts + back - begin, high - low)] = True
        columns["sentence_starts"] = marks
    spread = {name: np.zeros(len(tokens), dtype=column.dtype) for name, column in columns.items()}
    for name, column in columns.items():
        spread[name][inside] = column
    if turned is not None:
        at, mirror = np.arange(len(tokens)), np.repeat(piece_first[:-1] + piece_first[1:] - 1, sizes)
        at = np.where(turned.repeat(sizes), mirror - at, at)
        tokens, special = tokens[at], special[at]
        spread = {name: column[at] for name, column in spread.items()}
    return RaggedBatch(
        tokens=tokens,
        first=piece_first[np.concatenate([[0], np.cumsum(counts)])],
        segment=np.repeat(plan.segment[pieces], sizes),
        special=special,
        labels=np.full(len(tokens), NOTHING, dtype=np.int32),
        fields={name: values[chosen] for name, values in plan.fields.items()},
        following=None if plan.follows is None else _following(plan.follows[chosen], take, vocabulary),
        **spread,
    )


def _read_backward(column: np.ndarray, last: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """Word starts or unit bits of turned tokens, as marks of where a word or unit begins when read from its end.

    last: the last token of each piece, where a word or unit is taken to end.
    """
    if column.dtype == bool:
        ends = np.append(column[1:], True)
        ends[last] = True
        return np.where(turned, ends, column)
    out = np.where(turned, 0, column).astype(column.dtype)
    for start, inside in ((PHRASE_START, PHRASE_INSIDE), (ENTITY_START, ENTITY_INSIDE)):
        begins, member = (column & start) != 0, (column & (start | inside)) != 0
        ends = np.append(begins[1:] | ~member[1:], True)
        ends[last] = True
        out |= np.where(turned & member, np.where(ends, start, inside), 0).astype(column.dtype)
    return out


def _following(follows: np.ndarray, take: Take, vocabulary: Vocabulary) -> np.ndarray:
    """[examples]: the token after each, NOTHING where the text ends."""
    tokens = np.where(follows == END, NOTHING, vocabulary.sep).astype(np.int32)
    inside = follows >= 0
    tokens[inside] = take(follows[inside], follows[inside] + 1).tokens
    return tokens
