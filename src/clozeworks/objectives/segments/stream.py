"""The corpus as one text, for models that remember what they have read."""

from dataclasses import dataclass

import numpy as np

from clozeworks.errors import InputError, RecipeError
from clozeworks.examples import BORDER, END, Plan, ragged_arange
from clozeworks.objectives.objective import Segments, Text


@dataclass(slots=True)
class Stream(Segments):
    """The corpus end to end, a [SEP] after each document, in `lanes` that are read side by side (Dai et al. 2019).

    Lane l is the l-th of `lanes` equal stretches of that text; example i is chunk i // lanes of lane i % lanes, so
    that a batch of `lanes` rows goes on where the batch before it ended. Nothing is shuffled or packed, no [CLS] is
    added, and a row may hold the end of one document and the beginning of the next, each in sight of the other.
    Fields: `lane`, and `continues` (the row follows the one before it in its lane; not so for the first of an epoch).
    The plan also tells the token that follows each row, so that whoever learns to say what comes next is asked for
    every token of the corpus but its first, once: at the end of a row for that with which the next one begins.
    Departure: the released code drops what does not fill the last row of a lane; here that row is shorter.
    """

    lanes: int = 32

    def check(self, where: str) -> None:
        Segments.check(self, where)
        if self.lanes < 1:
            raise RecipeError(f"{where}.lanes", self.lanes, "at least 1 lane is needed", "32 is usual")

    def plan(self, text: Text, key: np.ndarray) -> Plan:
        borders = np.unique(text.sentences[text.documents])  # of the documents that are not empty
        sizes = np.diff(borders)
        begins = borders + np.arange(len(borders))  # each document is one token longer in the stream
        total = int(begins[-1])
        if total < self.lanes:
            raise InputError(
                "data",
                f"{total} tokens",
                f"a stream in {self.lanes} lanes needs a token for each",
                "prepare more text or set objective.segments.lanes lower",
            )
        starts, ends = self._chunks(total)
        low = np.searchsorted(begins, starts, side="right") - 1
        count = np.searchsorted(begins, ends - 1, side="right") - low
        document = ragged_arange(low, count)
        head = np.repeat(starts, count) - begins[document]
        tail = np.repeat(ends, count) - begins[document]
        each = np.arange(len(starts))
        after = np.minimum(np.searchsorted(begins, ends, side="right") - 1, len(sizes) - 1)
        inside = ends - begins[after]
        follows = np.where(inside < sizes[after], borders[after] + inside, np.where(ends < total, BORDER, END))
        return Plan(
            starts=borders[document] + np.maximum(head, 0),
            ends=borders[document] + np.minimum(tail, sizes[document]),
            segment=np.zeros(len(document), dtype=np.int8),
            first=np.concatenate([[0], np.cumsum(count)]),
            fields={"lane": each % self.lanes, "continues": each >= self.lanes},
            opened=np.zeros(len(document), dtype=bool),
            closed=tail > sizes[document],
            in_order=True,
            follows=follows,
        )

    def _chunks(self, total: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin and end of each example in a stream of `total` tokens."""
        lanes = np.arange(self.lanes + 1) * total // self.lanes
        longest = -(-total // self.lanes)
        count = -(-longest // self.length)
        # Lanes differ by a token; the shorter one keeps a token for its last chunk where it would have none.
        chunk, left = np.arange(count + 1)[:, None], np.diff(lanes)
        at = lanes[:-1] + np.minimum(chunk * self.length, left - (count - chunk))
        return at[:-1].ravel(), at[1:].ravel()
