"""Next sentence, over single sentences."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.sentences import cut, elsewhere, follow, need_documents
from clozeworks.objectives.segments.two_sides import Sides, two_sides


@dataclass(slots=True)
class SentencePair(Segments):
    """Two single sentences; half of the second ones come from another document (Liu et al. 2019, 4.2).

    B is the next sentence of the document (pair_label 0) or, half of the time, a random sentence of another document
    (pair_label 1), and then the next sentence is the A of the next example. The last sentence of a document, where
    it has no partner left, gets a random one: every sentence is used once besides the random ones. The examples are
    short; a step has the tokens of any other format because many of them share a row.
    Departure: a sentence longer than half a row is cut into equal parts, so that any two fit and nothing is dropped.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"pair_label"})

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        half = (self.length - 3) // 2
        sentences = cut(text, half, half, even=True)
        need_documents(sentences)

        def other(begin: np.ndarray) -> np.ndarray:
            last = begin + 1 == sentences.documents[sentences.document(begin) + 1]
            return last | (counter_rng.uniform(counter_rng.fold(key, "next"), begin) < 0.5)

        def sides(begin: np.ndarray) -> Sides:
            label, b = other(begin), begin + 1
            b[label], _ = elsewhere(sentences, begin[label], key)
            return sentences.offsets[np.stack([begin, begin + 1])], sentences.offsets[np.stack([b, b + 1])], label

        return two_sides(follow(lambda begin: begin + 2 - other(begin), sentences.count), sides)
