"""Batches for training: a mixture of corpora, prepared in the background, resumable from any step."""

import dataclasses
import itertools
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Vocabulary
from clozeworks.data.batches.rows import (
    PREFETCH_TOKENS,
    Corrupter,
    Planner,
    Row,
    Rows,
    Source,
    Text,
    batch_rows,
    collate,
    prefetch_chosen,
    row_widths,
)

Position = dict[str, Any]


class Loader:
    """Micro-batches step by step. Step t is a pure function of (corpora, seed, t); a position saves the walk there.

    Which corpus the r-th row comes from is a draw on (seed, r), so shares are shares of rows, that is of tokens.
    Of text in streams a step holds whole time steps, one after another, and micro-batch n of a time step always the
    same streams, so that what a model remembers of micro-batch n is the past of micro-batch n of the next time step.

    With `share` (r, W) it gives the r-th of W stretches of each step's rows (of each time step's streams), in as many
    pieces as everybody else. All walk through all rows, and read their own alone.
    """

    def __init__(
        self,
        corpora: Sequence[tuple[Text, float]],
        segments: Planner,
        corruption: Corrupter | None,
        vocabulary: Vocabulary,
        *,
        seed: int,
        batch_tokens: int,
        micro_tokens: int | None = None,
        ahead: int = 2,
        share: tuple[int, int] = (0, 1),
    ):
        weights = [weight for _, weight in corpora]
        self.limits = np.cumsum(weights) / sum(weights)
        self.sources = [
            Source(text, segments, corruption, vocabulary, seed + 1000003 * n) for n, (text, _) in enumerate(corpora)
        ]
        self.seed, self.ahead = seed, ahead
        self.rows_a_step = max(1, batch_tokens // segments.length)
        self.rows_a_micro = batch_rows(segments, micro_tokens or batch_tokens)
        streams = getattr(segments, "streams", None)
        if streams is not None:
            self._check_streams(streams, batch_tokens, segments.length)
        self.rank, self.size = share
        self.block = streams or self.rows_a_step  # rows that are shared out together
        self.pieces = self._pieces(segments.length)
        mine = len(np.array_split(np.arange(self.block), self.size)[self.rank]) * (self.rows_a_step // self.block)
        # Alone, what the pools prefetch serves; else own examples, as many.
        self.window = max(1, PREFETCH_TOKENS // (mine * segments.length)) if self.size > 1 else 1

    def _pieces(self, length: int) -> int:
        """Micro-batches of a block, as many in every process."""
        least, most = self.block // self.size, -(-self.block // self.size)
        many = f"{self.block} {'rows' if self.block == self.rows_a_step else 'streams'} of {length} tokens"
        if not least:
            needed = f"each of {self.size} processes needs one at least"
            raise InputError("a step", many, needed, "raise train.batch_tokens, or use fewer processes")
        pieces = -(-most // self.rows_a_micro)
        if pieces > least:  # one row at a time, and some have a row more than others
            needed = f"{self.size} processes cannot take turns on them one by one"
            raise InputError("a step", many, needed, f"use a multiple of {self.size}, or raise train.micro_tokens")
        return pieces

    def _check_streams(self, streams: int, batch_tokens: int, length: int) -> None:
        """Refuse steps that would tear the streams apart."""
        if len(self.sources) > 1:
            given, needed = f"{len(self.sources)} corpora", "text in streams is one text, read in order"
            raise InputError("--data", given, needed, "prepare them together into one directory")
        if self.rows_a_step % streams:
            needed = f"a step holds rows of {length} tokens of all {streams} streams"
            todo = f"use {streams * length} or a multiple of it, or change objective.segments.streams"
            raise InputError("train.batch_tokens", batch_tokens, needed, todo)

    def steps(self, position: Position | None = None) -> Generator[tuple[list[Batch], Position]]:
        """Endless (micro-batches of a step, position after it), made one thread ahead of the consumer."""
        ready: queue.Queue[tuple[list[Batch], Position] | BaseException] = queue.Queue(maxsize=self.ahead)
        stop = threading.Event()

        def give(item: tuple[list[Batch], Position] | BaseException) -> None:
            while not stop.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def produce() -> None:
            try:
                for item in self._make(position):
                    give(item)
                    if stop.is_set():
                        return
            except BaseException as error:  # the consumer raises it: a thread has nobody to raise it to
                give(error)

        thread = threading.Thread(target=produce, name="clozeworks-loader", daemon=True)
        thread.start()
        try:
            while True:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stop.set()
            thread.join()

    def _make(self, position: Position | None) -> Iterator[tuple[list[Batch], Position]]:
        walk = self.rows(position)
        while True:
            walked = list(itertools.islice(walk, self.window))
            steps = [self._mine(rows) for rows, _ in walked]
            if self.size > 1:
                prefetched = iter(prefetch_chosen([row for pieces in steps for piece in pieces for row in piece.rows]))
                steps = [
                    [dataclasses.replace(piece, rows=[next(prefetched) for _ in piece.rows]) for piece in pieces]
                    for pieces in steps
                ]
            for pieces, (_, after) in zip(steps, walked, strict=True):
                yield [piece.collate() for piece in pieces], after

    def rows(self, position: Position | None = None) -> Iterator[tuple[list[Row], Position]]:
        """Endless (rows of a step, position after it); what is in a row is read only when somebody looks."""
        places = position["sources"] if position else [None] * len(self.sources)
        streams = [Rows(source, place) for source, place in zip(self.sources, places, strict=True)]
        number = position["row"] if position else 0
        key = counter_rng.fold(self.seed, "mixture")
        while True:
            draw = counter_rng.uniform(key, np.arange(number, number + self.rows_a_step))
            which = np.minimum(np.searchsorted(self.limits, draw, side="right"), len(streams) - 1)
            rows = [streams[at].next() for at in which.tolist()]
            number += self.rows_a_step
            yield rows, {"row": number, "sources": [stream.position() for stream in streams]}

    def _mine(self, rows: list[Row]) -> list["Piece"]:
        """The pieces of a step that are this process's."""
        mine = []
        for block in range(0, len(rows), self.block):
            numbers = np.array_split(np.arange(block, block + self.block), self.size)[self.rank].tolist()
            if self.size == 1:
                pieces = [numbers[at : at + self.rows_a_micro] for at in range(0, len(numbers), self.rows_a_micro)]
            else:
                pieces = [piece.tolist() for piece in np.array_split(numbers, self.pieces)]
            widths = row_widths(rows[block : block + self.block])
            mine += [Piece(piece[0], [rows[at] for at in piece], widths) for piece in pieces]
        return mine


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of a micro-batch, as wide as those that other pieces of the block have: what a row drops may depend on
    its width, not on how a step was cut."""

    first: int  # the number of its first row within the step
    rows: list[Row]
    widths: tuple[int, ...]

    def collate(self) -> Batch:
        batch = collate(self.rows, self.widths)
        batch.row = self.first
        return batch
