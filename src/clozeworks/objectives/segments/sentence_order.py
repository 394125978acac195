"""Sentence order: are two neighbouring runs of sentences the right way round?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Share
from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.objective import Segments, Text
from clozeworks.objectives.segments.chunks import divide, gather, shorten, targets
from clozeworks.objectives.segments.sentences import cut, follow
from clozeworks.objectives.segments.two_sides import Sides, two_sides


@dataclass(slots=True)
class SentenceOrder(Segments):
    """Two neighbouring runs of sentences, swapped half of the time (Lan et al. 2020, 3.1).

    Chunks, their division and their shortening are those of `SegmentPair`; pair_label 1: swapped, 0: in order.
    Departure: for a chunk of one sentence the released code takes a run from another document with label 1, which
    mixes the easier question of topic into that of order. Here both sides of every example are neighbours: a chunk
    takes a second sentence even if its target is reached; the last sentence of a document joins the chunk before it
    where a row holds both, and is cut in the middle where not, as is the only sentence of a document. A single token
    at the end of a document always joins; a document that is one token has no order and makes no example.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    short: Share = 0.1

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """Two neighbouring segments, in their order or turned round."""
        room = self.length - 3
        sentences = cut(text, room, (room + 1) // 2)
        offsets = sentences.offsets
        target = targets(len(sentences.documents) - 1, room, self.short, key)

        def following(begin: np.ndarray) -> np.ndarray:
            over = sentences.documents[sentences.document(begin) + 1]
            end = np.maximum(gather(sentences, target, begin), np.minimum(begin + 2, over))
            fits = (over - end == 1) & (offsets[over] - offsets[begin] <= room)
            return np.where(fits | (offsets[over] - offsets[end] == 1), over, end)

        def sides(begin: np.ndarray) -> Sides:
            end = following(begin)
            middle = (offsets[begin] + offsets[begin + 1] + 1) // 2
            seam = np.where(end - begin > 1, offsets[divide(begin, end, key)], middle)
            a, b = np.stack([offsets[begin], seam]), np.stack([seam, offsets[end]])
            swapped = counter_rng.uniform(counter_rng.fold(key, "swap"), begin) < 0.5
            a[:, swapped], b[:, swapped] = b[:, swapped], a[:, swapped]
            shorten(a, b, room, counter_rng.fold(key, "shorten", begin))
            return a, b, swapped

        begin = follow(following, sentences.count)
        return two_sides(begin[np.diff(offsets[begin], append=offsets[-1]) > 1], sides)
