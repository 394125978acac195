"""Rows full of sentences, each of one document."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.sentences import cut, follow


@dataclass(slots=True)
class DocSentences(Segments):
    """Whole sentences in order until the example is full or the document ends (Liu et al. 2019, 4.2).

    What is left at the end of a document is a short example. The paper enlarges the batch for it; here short examples
    share a row. A sentence longer than a row is cut; nothing is dropped.
    """

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        room = self.length - 2
        sentences = cut(text, room, room)

        def following(begin: np.ndarray) -> np.ndarray:
            end = np.searchsorted(sentences.offsets, sentences.offsets[begin] + room, side="right") - 1
            return np.minimum(end, sentences.documents[sentences.document(begin) + 1])

        begin = follow(following, sentences.count)
        return ExamplePlan(
            starts=sentences.offsets[begin],
            ends=sentences.offsets[np.append(begin[1:], sentences.count)],
            segment=np.zeros(len(begin), dtype=np.int8),
            first=np.arange(len(begin) + 1),
        )
