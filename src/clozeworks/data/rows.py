"""From a corpus to rows of examples, in an order and a packing that depend on (seed, epoch) alone.

An epoch's examples are put in random order, cut into pools, and each pool is packed into rows of `length` tokens.
Rows are an endless stream: a batch is the next so many of them, so batch size, accumulation and the number of
processes never change which examples there are, what they hide, or what they share a row with.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from clozeworks import draws
from clozeworks.batch import PADDING, Batch, Borders, Kind, Side
from clozeworks.errors import InputError
from clozeworks.examples import NOTHING, Plan, Ragged, Vocabulary, assemble, ragged_arange

POOL = 1024  # examples packed together: enough to waste under 1 % of a row, few enough to start at once


class Text(Protocol):
    @property
    def sentences(self) -> np.ndarray: ...
    @property
    def documents(self) -> np.ndarray: ...
    def take(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class Planner(Protocol):
    length: int

    def plan(self, text: Text, key: np.ndarray) -> Plan: ...


class Corrupter(Protocol):
    kind: ClassVar[Kind]

    def corrupt(self, examples: Ragged, keys: np.ndarray, vocabulary: Vocabulary) -> Ragged: ...


@dataclass(frozen=True, slots=True)
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

    def epoch(self, number: int) -> "Epoch":
        key = draws.fold(self.seed, "epoch", number)
        plan = self.segments.plan(self.text, draws.fold(key, "segments"))
        if not len(plan):
            raise InputError("data", "no example", "text for at least one example is needed", "prepare more text")
        return Epoch(self, number, key, plan)


@dataclass(frozen=True, slots=True)
class Epoch:
    source: Source
    number: int
    key: np.ndarray
    plan: Plan

    def examples(self, index: np.ndarray, sentences: bool = False) -> Ragged:
        """The examples of these indices, corrupted; each a pure function of (seed, epoch, index)."""
        source = self.source
        borders = source.text.sentences if sentences else None
        ragged = assemble(self.plan, index, source.text.take, source.vocabulary, borders)
        if source.corruption is None:
            return ragged
        return source.corruption.corrupt(ragged, draws.fold(self.key, "corrupt", index), source.vocabulary)

    def pools(self) -> int:
        return -(-len(self.plan) // POOL)

    def rows(self, pool: int, order: np.ndarray) -> list[np.ndarray]:
        """The packed rows of one pool, each the indices of its examples."""
        members = order[pool * POOL : (pool + 1) * POOL]
        packed = pack(self.plan.lengths[members], self.source.segments.length)
        shuffled = draws.permutation(len(packed), draws.fold(self.key, "rows", pool))
        return [members[packed[at]] for at in shuffled]

    def order(self) -> np.ndarray:
        return draws.permutation(len(self.plan), draws.fold(self.key, "order"))


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
    epoch: Epoch
    index: np.ndarray


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
                self.packed = self.epoch.rows(self.pool, self.order)
        self.row += 1
        return Row(self.epoch, self.packed[self.row - 1])

    def _open_epoch(self) -> None:
        self.epoch = self.source.epoch(self.number)
        self.order = self.epoch.order()
        self.packed = self.epoch.rows(self.pool, self.order)


def collate(rows: list[Row]) -> Batch:
    """Packed rows as one batch: positions restart in each example, nobody sees a neighbour."""
    ragged = _read(rows)
    source = rows[0].epoch.source
    counts = np.array([len(row.index) for row in rows])
    lengths = ragged.lengths
    row_of = np.repeat(np.arange(len(rows)), counts)
    used = np.bincount(row_of, lengths, minlength=len(rows)).astype(np.int64)
    width = int(used.max())
    begins = np.cumsum(lengths) - lengths
    row_begins = np.cumsum(used) - used
    starts = begins - row_begins[row_of] + row_of * width
    at = ragged_arange(starts, lengths)

    def grid(values: np.ndarray, empty: int | np.ndarray) -> torch.Tensor:
        out = np.empty((len(rows), width), dtype=np.int64)
        out[:] = empty
        out.reshape(-1)[at] = values
        return torch.from_numpy(out)

    # Padding is a document like any other: its positions begin at 0 too.
    position = grid(ragged.position, np.maximum(np.arange(width) - used[:, None], 0))
    document = grid(ragged.example, PADDING)
    segment = grid(ragged.segment, 0) if ragged.segment.any() else None
    side = Side.make(position, document, source.kind, segment)
    gaps = np.flatnonzero(used < width)
    borders = Borders(
        tuple(starts.tolist()) + tuple((gaps * width + used[gaps]).tolist()),
        tuple(lengths.tolist()) + tuple((width - used[gaps]).tolist()),
        len(rows),
        width,
    )
    batch = Batch(grid(ragged.tokens, source.vocabulary.pad), side, source.kind, borders, torch.from_numpy(starts))
    chosen = np.flatnonzero(ragged.labels != NOTHING)
    batch.targets = torch.from_numpy(at[chosen])
    batch.labels = torch.from_numpy(ragged.labels[chosen].astype(np.int64))
    batch.example = {name: torch.from_numpy(values) for name, values in ragged.fields.items()}
    batch.real = int(lengths.sum())
    batch.index = tuple(np.concatenate([row.index for row in rows]).tolist())
    return batch


def _read(rows: list[Row]) -> Ragged:
    """The examples of the rows in order; rows of one epoch are read together."""
    parts: list[Ragged] = []
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and rows[end].epoch is rows[at].epoch:
            end += 1
        parts.append(rows[at].epoch.examples(np.concatenate([row.index for row in rows[at:end]])))
        at = end
    return parts[0] if len(parts) == 1 else concatenate(parts)


def concatenate(parts: list[Ragged]) -> Ragged:
    firsts = [parts[0].first]
    for part in parts[1:]:
        firsts.append(part.first[1:] + firsts[-1][-1])

    def joined(name: str) -> np.ndarray | None:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    names = [each.name for each in dataclasses.fields(Ragged) if each.name not in ("first", "fields")]
    columns: dict[str, Any] = {name: joined(name) for name in names}
    fields = {name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields}
    return Ragged(first=np.concatenate(firsts), fields=fields, **columns)
