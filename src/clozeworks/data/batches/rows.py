"""From a corpus to rows of examples, in an order and a packing that depend on (seed, epoch) alone.

An epoch's examples are put in random order, cut into pools, and each pool is packed into rows of `length` tokens.
Rows are an endless stream: a batch is the next so many of them, so batch size, accumulation and the number of
processes never change which examples there are, what they hide, or what they share a row with. A plan that is
`in_order` is read as it stands, an example a row. Of examples with two sides a row holds both, each within its room.
"""

import dataclasses
import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from clozeworks.core import counter_rng
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import NOTHING, Columns, ExamplePlan, RaggedBatch, Vocabulary, assemble, ragged_arange
from clozeworks.core.token_info import PADDING, DocumentLayout, Kind, TokenInfo
from clozeworks.data.batches import sides
from clozeworks.data.batches.spans import locate_spans

PREFETCH_TOKENS = 1 << 17  # tokens read together: a few milliseconds, a few megabytes
POOL = 1024  # examples packed together: enough to waste under 1 % of a row, few enough to start at once


class Text(Protocol):
    """A text that examples are read from: token offsets of its sentences, and sentence offsets of its documents."""

    @property
    def sentences(self) -> np.ndarray: ...
    @property
    def documents(self) -> np.ndarray: ...
    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns: ...


class Planner(Protocol):
    """What divides a text into the examples of an epoch."""

    length: int

    @property
    def rooms(self) -> tuple[int, ...]: ...

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan: ...


class Corrupter(Protocol):
    """What masks or otherwise corrupts examples, and says what is to be predicted."""

    kind: ClassVar[Kind]

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch: ...
    def read_lengths(self, plan: ExamplePlan, chosen: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Source:
    """Everything that decides an example, given its epoch and index."""

    text: Text
    segments: Planner
    corruption: Corrupter | None
    vocabulary: Vocabulary
    seed: int

    @property
    def kind(self) -> Kind:
        return self.corruption.kind if self.corruption else "full"

    @property
    def two_sided(self) -> bool:
        """Whether an example is two rows, one written from the other."""
        return getattr(self.corruption, "sides", 1) == 2

    @cached_property
    def counted(self) -> Vocabulary:
        """The vocabulary, with the counts of the text's tokens where the corruption draws by them."""
        unigram = getattr(self.text, "unigram", None)
        if unigram is None or not getattr(self.corruption, "needs_counts", False):
            return self.vocabulary
        return dataclasses.replace(self.vocabulary, counts=unigram())

    def epoch(self, number: int) -> "Epoch":
        copies = getattr(self.corruption, "copies", None)
        key = counter_rng.fold(self.seed, "epoch", number % copies if copies else number)
        plan = self.segments.plan(self.text, counter_rng.fold(key, "segments"))
        if not len(plan):
            raise InputError("data", "no example", "text for at least one example is needed", "prepare more text")
        return Epoch(self, number, key, plan)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The examples of one epoch. `key` decides what they are; the order they come in is the epoch number's own."""

    source: Source
    number: int
    key: np.ndarray
    plan: ExamplePlan

    def examples(self, index: np.ndarray, sentences: bool = False) -> RaggedBatch:
        """The examples of these indices, corrupted; each a pure function of (seed, epoch, index)."""
        source = self.source
        borders = source.text.sentences if sentences else None
        ragged = assemble(self.plan, index, source.text.take, source.vocabulary, borders)
        if source.corruption is None:
            return ragged
        return source.corruption.corrupt(ragged, counter_rng.fold(self.key, "corrupt", index), source.counted)

    def sizes(self, index: np.ndarray) -> np.ndarray:
        """[examples, sides]: tokens of each as a model reads them, without reading them."""
        corruption = self.source.corruption
        if self.source.two_sided:
            return sides.sizes(self.plan, index)
        return (self.plan.lengths_of(index) if corruption is None else corruption.read_lengths(self.plan, index))[
            :, None
        ]

    def pools(self) -> int:
        return -(-len(self.plan) // POOL)

    def rows(self, pool: int, order: np.ndarray) -> list[np.ndarray]:
        """The packed rows of one pool, each the indices of its examples."""
        members = order[pool * POOL : (pool + 1) * POOL]
        if self.plan.in_order:
            return list(members[:, None])
        if self.source.two_sided:
            packed = sides.pack(sides.sizes(self.plan, members), self.source.segments.rooms)
        else:
            packed = pack(self.plan.lengths_of(members), self.source.segments.length)
        shuffled = counter_rng.permutation(len(packed), counter_rng.fold(self._order_key(), "rows", pool))
        return [members[packed[at]] for at in shuffled]

    def order(self) -> np.ndarray:
        if self.plan.in_order:
            return np.arange(len(self.plan))
        return counter_rng.permutation(len(self.plan), counter_rng.fold(self._order_key(), "order"))

    def _order_key(self) -> np.ndarray:
        return counter_rng.fold(self.source.seed, "epoch", self.number)


def batch_rows(segments: Planner, tokens: int) -> int:
    """The rows of a batch of about so many tokens. Of text in streams, each stream once at most, and evenly many."""
    rows = max(1, tokens // segments.length)
    streams = getattr(segments, "streams", None)
    return rows if streams is None else next(n for n in range(min(rows, streams), 0, -1) if streams % n == 0)


def pack(lengths: np.ndarray, width: int) -> list[list[int]]:
    """Best-fit decreasing: which items share a row. O(n) with the open rows filed under the room they have left."""
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}
    rooms = 0  # bit r set: some row has room r left
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms &= ~(1 << room)
            rows[row].append(item)
        else:
            room, row = width, len(rows)
            rows.append([item])
        left = room - length
        if left > 0:
            open_rows.setdefault(left, []).append(row)
            rooms |= 1 << left
    return rows


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch: the examples of an epoch that are packed into it."""

    epoch: Epoch
    index: np.ndarray
    prefetched: "Prefetched | None" = None  # its examples, read together with those of its neighbours
    place: int = 0  # of its first example among those prefetched


class Prefetched:
    """The examples of consecutive rows, read and masked in one go when the first of them is asked for.

    Small arrays cost numpy more to call than to compute, so this makes batches of 32 short rows several times faster.
    """

    def __init__(self, epoch: Epoch, index: np.ndarray):
        self._epoch, self._index = epoch, index

    @cached_property
    def examples(self) -> RaggedBatch:
        """All of them, read at the first call."""
        return self._epoch.examples(self._index)


def read_ahead(epoch: Epoch, rows: list[np.ndarray]) -> list[Row]:
    """Rows of these examples, about PREFETCH_TOKENS tokens read at once."""
    ahead: list[Row] = []
    many = max(1, PREFETCH_TOKENS // epoch.source.segments.length)
    for begin in range(0, len(rows), many):
        mine = rows[begin : begin + many]
        prefetched = Prefetched(epoch, np.concatenate(mine))
        places = itertools.accumulate(map(len, mine), initial=0)
        ahead += [Row(epoch, index, prefetched, place) for index, place in zip(mine, places, strict=False)]
    return ahead


def prefetch_chosen(rows: list[Row]) -> list[Row]:
    """Rows that were chosen from many, prefetched by themselves: of the others nothing is read."""
    members: dict[int, list[Row]] = {}
    for row in rows:
        members.setdefault(id(row.epoch), []).append(row)
    groups = [(group[0].epoch, np.concatenate([row.index for row in group])) for group in members.values()]
    prefetched = {id(epoch): Prefetched(epoch, index) for epoch, index in groups}
    places: Counter[int] = Counter()
    chosen = []
    for row in rows:
        at = id(row.epoch)
        chosen.append(Row(row.epoch, row.index, prefetched[at], places[at]))
        places[at] += len(row.index)
    return chosen


class Rows:
    """The endless rows of one source, from any position."""

    def __init__(self, source: Source, position: dict[str, int] | None = None):
        self.source = source
        self.number, self.pool, self.row = (position[n] for n in ("epoch", "pool", "row")) if position else (0, 0, 0)
        self._open_epoch()

    def position(self) -> dict[str, int]:
        return {"epoch": self.number, "pool": self.pool, "row": self.row}

    def next(self) -> Row:
        while self.row >= len(self.packed):
            self.pool, self.row = self.pool + 1, 0
            if self.pool >= self.epoch.pools():
                self.number, self.pool = self.number + 1, 0
                self._open_epoch()
            else:
                self._open_pool()
        self.row += 1
        return self.packed[self.row - 1]

    def _open_epoch(self) -> None:
        self.epoch = self.source.epoch(self.number)
        self.order = self.epoch.order()
        self._open_pool()

    def _open_pool(self) -> None:
        self.packed = read_ahead(self.epoch, self.epoch.rows(self.pool, self.order))


def row_widths(rows: list[Row]) -> tuple[int, ...]:
    """The tokens of the widest of these rows, on each side."""
    members: dict[int, list[Row]] = {}
    for row in rows:
        members.setdefault(id(row.epoch), []).append(row)
    widest = []
    for group in members.values():
        sizes = group[0].epoch.sizes(np.concatenate([row.index for row in group]))
        begins = np.cumsum([0, *(len(row.index) for row in group[:-1])])
        widest.append(np.add.reduceat(sizes, begins).max(0))
    return tuple(np.max(widest, axis=0).tolist())


def collate(rows: list[Row], widths: tuple[int, ...] | None = None) -> Batch:
    """Packed rows as one batch: positions restart in each example, nobody sees a neighbour.

    `widths`: what the rows of each side are filled up to; None: the longest.
    """
    source = rows[0].epoch.source
    counts = np.array([len(row.index) for row in rows])
    batch = fill_rows(_read(rows), counts, source.kind, source.vocabulary.pad, source.two_sided, widths)
    batch.keep = getattr(source.segments, "reuse", None)
    batch.index = tuple(np.concatenate([row.index for row in rows]).tolist())
    return batch


def fill_rows(
    ragged: RaggedBatch,
    counts: np.ndarray,
    kind: Kind,
    pad: int,
    two_sided: bool,
    widths: tuple[int, ...] | None = None,
) -> Batch:
    """A batch of examples in rows of so many, with what is to be predicted of them.

    Where examples have two sides, it is that of the targets, and `source` what they are written from.
    """
    given = None
    if two_sided:
        given, ragged = sides.split_sides(ragged)
    *sources, width = widths or (0,) * (1 + two_sided)
    batch, at = lay_out(ragged, counts, kind, pad, width)
    chosen = np.flatnonzero(ragged.labels != NOTHING)
    batch.targets = torch.from_numpy(at[chosen])
    batch.labels = torch.from_numpy(ragged.labels[chosen].astype(np.int64))
    batch.spans = locate_spans(ragged, chosen, at)
    batch.example = {name: torch.from_numpy(values) for name, values in ragged.fields.items()}
    if given is not None:
        batch.source, _ = lay_out(given, counts, "full", pad, sources[0])
    return batch


def lay_out(ragged: RaggedBatch, counts: np.ndarray, kind: Kind, pad: int, least: int = 0) -> tuple[Batch, np.ndarray]:
    """Examples in rows of so many, padded to the longest, or to `least` tokens, and the flat offset of each token."""
    lengths = ragged.lengths
    row_of = np.repeat(np.arange(len(counts)), counts)
    used = np.bincount(row_of, lengths, minlength=len(counts)).astype(np.int64)
    width = max(int(used.max()), least)
    begins = np.cumsum(lengths) - lengths
    row_begins = np.cumsum(used) - used
    starts = begins - row_begins[row_of] + row_of * width
    at = ragged_arange(starts, lengths)

    full = len(ragged.tokens) == len(counts) * width

    def grid(values: np.ndarray, empty: int | np.ndarray) -> torch.Tensor:
        if full:
            return torch.from_numpy(values.astype(np.int64).reshape(len(counts), width))
        out = np.empty((len(counts), width), dtype=np.int64)
        out[:] = empty
        out.reshape(-1)[at] = values
        return torch.from_numpy(out)

    # Padding is a document like any other: its positions begin at 0 too, but go no further than those of the longest
    # example, which may be all that the model has positions for.
    padding = 0 if full else np.clip(np.arange(width) - used[:, None], 0, lengths.max() - 1)
    position = grid(ragged.position, padding)
    document = grid(ragged.example, PADDING)
    segment = grid(ragged.segment, 0) if ragged.segment.any() else None
    backward = torch.from_numpy(ragged.fields["backward"]) if "backward" in ragged.fields else None
    if ragged.order is not None:
        order = grid(ragged.order, 0)
        side = TokenInfo(position, document, order, order, segment)
    else:
        side = TokenInfo.make(position, document, kind, segment)
    if backward is not None:  # an example a row
        side = dataclasses.replace(side, position=torch.where(backward[:, None], -position, position))
    most = 0
    if ragged.marked is not None:
        marked = grid(ragged.marked, 0).bool()
        side, most = dataclasses.replace(side, marked=marked), int(marked.sum(1).max())
    gaps = np.flatnonzero(used < width)
    borders = DocumentLayout(
        tuple(starts.tolist()) + tuple((gaps * width + used[gaps]).tolist()),
        tuple(lengths.tolist()) + tuple((width - used[gaps]).tolist()),
        len(counts),
        width,
    )
    batch = Batch(grid(ragged.tokens, pad), side, kind, borders, torch.from_numpy(starts))
    batch.lasts = torch.from_numpy(starts + lengths - 1)
    batch.real, batch.backward, batch.most_marked = int(lengths.sum()), backward, most
    return batch, at


def _read(rows: list[Row]) -> RaggedBatch:
    """The examples of the rows in order; neighbours are read together, or taken together from what was prefetched."""
    parts: list[RaggedBatch] = []
    at = 0
    while at < len(rows):
        head, end, count = rows[at], at, 0
        while end < len(rows) and rows[end].epoch is head.epoch and rows[end].prefetched is head.prefetched:
            if head.prefetched is not None and rows[end].place != head.place + count:
                break
            count += len(rows[end].index)
            end += 1
        if head.prefetched is None:
            parts.append(head.epoch.examples(np.concatenate([row.index for row in rows[at:end]])))
        else:
            parts.append(_stretch(head.prefetched.examples, head.place, head.place + count))
        at = end
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _stretch(ragged: RaggedBatch, begin: int, end: int) -> RaggedBatch:
    """Examples begin : end."""
    if begin == 0 and end == len(ragged):
        return ragged
    first = ragged.first[begin : end + 1]
    return _select(ragged, slice(first[0], first[-1]), slice(begin, end), first - first[0])


def take_rows(ragged: RaggedBatch, index: np.ndarray) -> RaggedBatch:
    """Some of the examples, in this order."""
    lengths = ragged.lengths[index]
    at = ragged_arange(ragged.first[index], lengths)
    return _select(ragged, at, index, np.concatenate([[0], np.cumsum(lengths)]))


Index = np.ndarray | slice


def _select(ragged: RaggedBatch, tokens: Index, examples: Index, first: np.ndarray) -> RaggedBatch:
    columns: dict[str, Any] = {name: getattr(ragged, name) for name in _COLUMNS}
    columns = {name: None if column is None else column[tokens] for name, column in columns.items()}
    fields = {name: values[examples] for name, values in ragged.fields.items()}
    return RaggedBatch(first=first, fields=fields, **columns)


_PER_EXAMPLE = ("first", "fields", "following")  # the last is of use to a corruption, and goes no further
_COLUMNS = tuple(each.name for each in dataclasses.fields(RaggedBatch) if each.name not in _PER_EXAMPLE)
ABSENT = {"span": -1}  # what an optional column holds where a part came without it; 0 or False otherwise


def concatenate(parts: list[RaggedBatch]) -> RaggedBatch:
    """Examples of several sources or epochs one after another, with every column that any of them has."""
    firsts = [parts[0].first]
    for part in parts[1:]:
        firsts.append(part.first[1:] + firsts[-1][-1])

    def joined(name: str) -> np.ndarray | None:
        columns = [getattr(part, name) for part in parts]
        there = [column for column in columns if column is not None]
        if not there:
            return None
        blank = np.asarray(ABSENT.get(name, 0), dtype=there[0].dtype)
        sizes = [len(part.tokens) for part in parts]
        pairs = zip(sizes, columns, strict=True)
        return np.concatenate([np.full(size, blank) if column is None else column for size, column in pairs])

    columns: dict[str, Any] = {name: joined(name) for name in _COLUMNS}
    fields = {name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields}
    return RaggedBatch(first=np.concatenate(firsts), fields=fields, **columns)
