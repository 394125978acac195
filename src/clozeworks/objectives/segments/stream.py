"""The corpus as one text, for models that remember what they have read."""

from dataclasses import dataclass

import numpy as np

from clozeworks.errors import RecipeError
from clozeworks.examples import Plan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.line import Line


@dataclass(slots=True)
class Stream(Segments):
    """The corpus end to end, a [SEP] after each document, in `lanes` that are read side by side (Dai et al. 2019).

    Lane l is the l-th of `lanes` equal stretches of that text; example i is chunk i // lanes of lane i % lanes, so
    that a batch of `lanes` rows goes on where the batch before it ended. Nothing is shuffled or packed, no [CLS] is
    added, and a row may hold the end of one document and the beginning of the next, each in sight of the other.
    Fields: `lane`, and `continues` (the row follows the one before it in its lane; not so for the first of an epoch).
    Departure: the released code drops what does not fill the last row of a lane; here that row is shorter.
    """

    lanes: int = 32

    def check(self, where: str) -> None:
        Segments.check(self, where)
        if self.lanes < 1:
            raise RecipeError(f"{where}.lanes", self.lanes, "at least 1 lane is needed", "32 is usual")

    def plan(self, text: Text, key: np.ndarray) -> Plan:
        line = Line.of(text)
        pieces = line.pieces(*line.chunks(self.lanes, self.length))
        each = np.arange(len(pieces.counts))
        return Plan(
            starts=pieces.starts,
            ends=pieces.ends,
            segment=np.zeros(len(pieces.starts), dtype=np.int8),
            first=np.concatenate([[0], np.cumsum(pieces.counts)]),
            fields={"lane": each % self.lanes, "continues": each >= self.lanes},
            opened=np.zeros(len(pieces.starts), dtype=bool),
            closed=pieces.closed,
            in_order=True,
        )
