"""The corpus as one text in two directions, with two segments behind what is remembered."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import ExamplePlan, ragged_arange
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.line import Line
from clozeworks.objectives.segments.sentences import cut

REUSED, A, A_END, B, B_END, LAST = range(6)  # of a row: text, text, [SEP], text, [SEP], [CLS]
SEGMENT = np.array([0, 0, 0, 1, 1, 2], dtype=np.int8)
SPECIALS = 3


@dataclass(slots=True)
class PairStream(Segments):
    """Rows of `reuse` tokens of one text, then what follows as `A [SEP] B [SEP] [CLS]` (Yang et al. 2019, 2.5, A.1).

    The corpus end to end, a [SEP] after each document, is cut into streams as `Stream` does. Row t of a stream begins
    with the t-th `reuse` tokens of the stream, so that a model that remembers these continues where they ended. A is a
    random number of the sentences that follow, and B fills the row to exactly `length` tokens: it continues A
    (pair_label 0) or, half of the time, begins with a sentence from elsewhere (pair_label 1). If the first sentence
    alone would fill the row, A is half of it and B comes from elsewhere. Segments: 0 up to A, 1 for B, 2 for [CLS].
    With `both`, half of the streams hold the same text from its end to its beginning: their rows are made alike, of the
    corpus turned round, with [CLS] last.

    Fields: `stream`; `continues` (not so for the first row of an epoch); `reused`, how many tokens at the head of the
    row are those of the stream that come once (fewer in the last rows); `backward`, with `both`; `pair_label`. After
    the end of a stream comes the text of the next, and after the corpus its beginning, so every row is full.
    Departures: the released code ends a document with a token of its own, draws B from the same stream, lets B run to
    the end of a sentence and cuts the longer of A and B to fit, and drops the rows at the end of a stream.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    continues: ClassVar[bool] = True
    kinds: ClassVar[int] = 3
    streams: Count = 32
    reuse: Count = 64
    both: bool = True

    def check(self, where: str) -> None:
        if self.both and self.streams % 2:
            needed = "half of the streams are read backward"
            raise RecipeError(f"{where}.streams", self.streams, needed, f"use {self.streams + 1}, or both = false")
        most = self.length - SPECIALS - 2
        if not 2 <= self.reuse <= most:
            needed = f"a row of {self.length} tokens also holds two segments and {SPECIALS} specials"
            raise RecipeError(f"{where}.reuse", self.reuse, needed, f"use 2 to {most}; half of the length is usual")

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        self.check("objective.segments")  # a phase may have shorter rows
        line = Line.of(text)
        if line.total < 2 * self.length:
            needed = f"a row of {self.length} tokens, and as many elsewhere, are needed"
            raise InputError("data", f"{line.total} tokens", needed, "prepare more text or use shorter rows")
        sentences = line.place(cut(text, line.total, line.total).offsets[:-1])
        ways = [self._stretches(line, sentences, counter_rng.fold(key, "forward"))]
        if self.both:
            turned = np.append(0, line.total - sentences[:0:-1])
            stretches, label = self._stretches(line, turned, counter_rng.fold(key, "backward"))
            ways.append((-stretches[..., ::-1], label))  # place p of the turned line is -p, counted round the line
        stretches, label = (np.concatenate(each, axis=1) for each in zip(*ways, strict=True))
        backward = np.tile(np.arange(self.streams) >= self.streams // len(ways), len(label))
        return self._plan(line, stretches.reshape(-1, 3, 2), label.ravel(), backward)

    def _stretches(self, line: Line, sentences: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[rows, streams, 3, 2]: begin and end of what is reused, of A and of B; [rows, streams]: the label.

        `sentences` are the places where one begins. Places are counted on behind the end of the line.
        """
        total, many = line.total, len(sentences)
        begin, end = line.chunks(self.streams // (1 + self.both), self.reuse)
        row = np.arange(len(begin))

        def first(place: np.ndarray) -> np.ndarray:
            """The number of the first sentence that does not begin before a place."""
            lap, rest = np.divmod(place, total)
            return lap * many + np.searchsorted(sentences, rest)

        def place(number: np.ndarray) -> np.ndarray:
            lap, sentence = np.divmod(number, many)
            return lap * total + sentences[sentence]

        room = self.length - SPECIALS - (end - begin)
        over = end + room
        low = first(end + 1)
        ends = first(over) - low  # of sentences, within the room
        chosen = low + counter_rng.below(np.maximum(ends, 1), counter_rng.fold(key, "a"), row)
        a_end = np.where(ends > 0, place(chosen), end + room // 2)
        other = (ends == 0) | (counter_rng.uniform(counter_rng.fold(key, "next"), row) < 0.5)
        away = over + (counter_rng.uniform(counter_rng.fold(key, "other"), row) * (total - (over - begin))).astype(
            np.int64
        )
        b_begin = np.where(other, np.maximum(place(first(away + 1) - 1), over), a_end)
        bounds = [begin, end, end, a_end, b_begin, b_begin + over - a_end]
        streams = (-1, self.streams // (1 + self.both))
        return np.stack(bounds, axis=-1).reshape(*streams, 3, 2), other.astype(np.int64).reshape(streams)

    def _plan(self, line: Line, stretches: np.ndarray, label: np.ndarray, backward: np.ndarray) -> ExamplePlan:
        """Of stretches [examples, 3, 2], in the direction of the corpus."""
        each = np.arange(len(stretches))
        sizes = stretches[..., 1] - stretches[..., 0]
        low = stretches[..., 0] % line.total
        pieces = line.pieces(low.ravel(), (low + sizes).ravel())
        counts = np.ones((len(each), 6), dtype=np.int64)
        counts[:, [REUSED, A, B]] = pieces.counts.reshape(-1, 3)
        ends = np.cumsum(counts).reshape(-1, 6)
        begins = ends - counts
        # Read backward, the last document comes first.
        at = ragged_arange(begins[:, [REUSED, A, B]].ravel(), pieces.counts)
        mirror = (begins + ends - 1)[:, [REUSED, A, B]].ravel()
        at = np.where(backward.repeat(3).repeat(pieces.counts), mirror.repeat(pieces.counts) - at, at)
        starts, stops = np.zeros((2, ends[-1, -1]), dtype=np.int64)
        opened, closed = np.zeros((2, ends[-1, -1]), dtype=bool)
        starts[at], stops[at], closed[at] = pieces.starts, pieces.ends, pieces.closed
        closed[begins[:, [A_END, B_END]]] = True
        opened[begins[:, LAST]] = True
        fields = {
            "stream": each % self.streams,
            "continues": each >= self.streams,
            "reused": sizes[:, 0],
            "pair_label": label,
        }
        return ExamplePlan(
            starts=starts,
            ends=stops,
            segment=np.tile(SEGMENT, len(each)).repeat(counts.ravel()),
            first=np.append(0, ends[:, -1]),
            fields={**fields, "backward": backward} if self.both else fields,
            opened=opened,
            closed=closed,
            in_order=True,
        )
