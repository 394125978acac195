"""Rows full of sentences, over document borders."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core.examples import ExamplePlan, ragged_arange
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.sentences import cut, follow


@dataclass(slots=True)
class FullSentences(Segments):
    """Whole sentences in order until the row is full, over document borders, with one more [SEP] at each border
    (Liu et al. 2019, 4.2). A sentence longer than a row is cut; nothing is dropped."""

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """Whole sentences end to end, as many as a row has room for."""
        room = self.length - 2
        sentences = cut(text, room, room)
        offsets, documents, count = sentences.offsets, sentences.documents, sentences.count

        def following(begin: np.ndarray) -> np.ndarray:
            # Offsets in a stream where each document border costs one token more.
            near = np.arange(begin[0], min(begin[-1] + 1 + room, count))
            document = sentences.document(near)
            ends = offsets[near + 1] + document
            starts = offsets[begin] + document[: len(begin)]
            return begin[0] + np.searchsorted(ends, starts + room, side="right")

        begin = follow(following, count)
        end = np.append(begin[1:], count)
        head = sentences.document(begin)
        pieces = sentences.document(end - 1) - head + 1
        of = ragged_arange(head, pieces)
        owner = np.repeat(np.arange(len(begin)), pieces)
        return ExamplePlan(
            starts=offsets[np.maximum(documents[of], begin[owner])],
            ends=offsets[np.minimum(documents[of + 1], end[owner])],
            segment=np.zeros(len(of), dtype=np.int8),
            first=np.concatenate([[0], np.cumsum(pieces)]),
        )
