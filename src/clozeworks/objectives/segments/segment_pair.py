"""Next sentence, over runs of sentences."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Share
from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.chunks import divide, gather, shorten, targets
from clozeworks.objectives.segments.sentences import cut, elsewhere, follow, need_documents
from clozeworks.objectives.segments.two_sides import Sides, two_sides


@dataclass(slots=True)
class SegmentPair(Segments):
    """Two runs of sentences; half of the second ones come from another document (Devlin et al. 2018, A.2).

    The algorithm of the released code: a document has a target length (length - 3; with probability `short` uniform
    in [2, length - 3]); sentences are gathered until they reach it; A takes a random number of them; B is the rest
    (pair_label 0) or, half of the time and whenever there is only one sentence, a run from another document
    (pair_label 1), and then the unused sentences are used again. The longer side loses tokens from its front or
    back until both fit. Departures: the other document is never the same one (the original tries ten times), and a
    sentence longer than the target is first cut into halves of it, where the original drops what does not fit.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    short: Share = 0.1

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """Two segments of neighbouring sentences, or the second from elsewhere."""
        room = self.length - 3
        sentences = cut(text, room, (room + 1) // 2)
        need_documents(sentences)
        target = targets(len(sentences.documents) - 1, room, self.short, key)

        def chunk(begin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Of the chunks that begin at these sentences: end of A, whether B comes from elsewhere, end."""
            end = gather(sentences, target, begin)
            other = (end - begin == 1) | (counter_rng.uniform(counter_rng.fold(key, "next"), begin) < 0.5)
            return divide(begin, end, key), other, end

        def following(begin: np.ndarray) -> np.ndarray:
            a_end, other, end = chunk(begin)
            return np.where(other, a_end, end)

        def sides(begin: np.ndarray) -> Sides:
            a_end, other, end = chunk(begin)
            a = sentences.offsets[np.stack([begin, a_end])]
            b = sentences.offsets[np.stack([a_end, end])]
            away, over = elsewhere(sentences, begin[other], key)
            wanted = target[sentences.document(begin[other])] - (a[1] - a[0])[other]
            reached = np.searchsorted(sentences.offsets, sentences.offsets[away] + np.maximum(wanted, 1))
            b[:, other] = sentences.offsets[np.stack([away, np.minimum(reached, over)])]
            shorten(a, b, room, counter_rng.fold(key, "shorten", begin))
            return a, b, other

        return two_sides(follow(following, sentences.count), sides)
