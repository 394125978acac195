"""The corpus as one text, for models that remember what they have read."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import END, ExamplePlan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.line import Line


@dataclass(slots=True)
class Stream(Segments):
    """The corpus end to end, a [SEP] after each document, in `streams` that are read side by side (Dai et al. 2019).

    Stream l is the l-th of `streams` equal stretches of that text; example i is chunk i // streams of stream
    i % streams, so that a batch of `streams` rows continues where the batch before it ended. Nothing is shuffled or
    packed, no [CLS] is added, and a row may hold the end of one document and the beginning of the next, each in sight
    of the other. Fields: `stream`, and `continues` (the row follows the one before it in its stream; false for the
    first of an epoch).
    The plan also tells the token that follows each row, so that whoever learns to say what comes next is asked for
    every token of the corpus but its first, once: at the end of a row for that with which the next one begins.
    With `both`, every other stream holds the same text from its end to its beginning (field `backward`), so that the
    corpus is read both ways, each in half of the streams, with a [SEP] before each document instead.
    Departure: the released code drops what does not fill the last row of a stream; here that row is shorter.
    """

    continues: ClassVar[bool] = True
    streams: Count = 32
    both: bool = False

    def check(self, where: str) -> None:
        if self.both and self.streams % 2:
            needed = "every other stream is read backward"
            raise RecipeError(f"{where}.streams", self.streams, needed, f"use {self.streams + 1}, or both = false")

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """Chunk after chunk of every stream."""
        line = Line.of(text)
        if self.both:
            return self._both(line)
        starts, ends = line.chunks(self.streams, self.length)
        pieces = line.pieces(starts, ends)
        each = np.arange(len(starts))
        return ExamplePlan(
            starts=pieces.starts,
            ends=pieces.ends,
            segment=np.zeros(len(pieces.starts), dtype=np.int8),
            first=np.concatenate([[0], np.cumsum(pieces.counts)]),
            fields={"stream": each % self.streams, "continues": each >= self.streams},
            opened=np.zeros(len(pieces.starts), dtype=bool),
            closed=pieces.closed,
            in_order=True,
            follows=line.follows(ends),
        )

    def _both(self, line: Line) -> ExamplePlan:
        """Streams 0, 2, ... forward, streams 1, 3, ... the same line turned round, whose place p is place total - p."""
        starts, ends = line.chunks(self.streams // 2, self.length)
        turned = line.total - ends, line.total - starts
        starts, ends = (np.stack(each, 1).ravel() for each in zip((starts, ends), turned, strict=True))
        each = np.arange(len(starts))
        backward = each % 2 == 1
        pieces = line.pieces(starts, ends)
        first = np.append(0, np.cumsum(pieces.counts))
        # Read backward, the last document of a chunk comes first.
        at = np.arange(first[-1])
        mirror = np.repeat(first[:-1] + first[1:] - 1, pieces.counts)
        at = np.where(backward.repeat(pieces.counts), mirror - at, at)
        before = np.where(starts > 0, line.follows(np.maximum(starts - 1, 0)), END)
        return ExamplePlan(
            starts=pieces.starts[at],
            ends=pieces.ends[at],
            segment=np.zeros(len(at), dtype=np.int8),
            first=first,
            fields={"stream": each % self.streams, "continues": each >= self.streams, "backward": backward},
            opened=np.zeros(len(at), dtype=bool),
            closed=pieces.closed[at],
            in_order=True,
            follows=np.where(backward, before, line.follows(ends)),
        )
