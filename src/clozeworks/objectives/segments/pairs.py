"""Two-sided text: a source and its target."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core.bounds import Count
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.objective import Segments, Text


@dataclass(slots=True)
class Pairs(Segments):
    """source [SEP] as segment 0 and [CLS] target [SEP] as segment 1 (sequence to sequence, Vaswani et al. 2017).

    The corpus is made of documents of two sentences. `length` is the room of both sides, specials included, of which
    the target has `target_length`; a side that is longer loses its end. Field `cut`: the tokens an example lost.
    """

    target_length: Count = 64

    @property
    def rooms(self) -> tuple[int, ...]:
        return self.length - self.target_length, self.target_length

    def check(self, where: str) -> None:
        if not 4 <= self.target_length <= self.length - 4:
            needed = f"4 to {self.length - 4} of the {self.length} tokens of an example are needed"
            raise RecipeError(f"{where}.target_length", self.target_length, needed, f"use {self.length // 2}")

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """One example a pair, each side cut to its room."""
        sentences = np.diff(text.documents)
        if (sentences != 2).any() or not len(sentences):
            at = int(np.argmax(sentences != 2)) if len(sentences) else 0
            given = f"document {at + 1} has {sentences[at]} sentences" if len(sentences) else "no document"
            needed = "two-sided text is documents of two sentences, source and target"
            todo = "prepare it with `clozeworks prepare pairs.jsonl --pairs en,de --out DIR`"
            raise InputError("data", given, needed, todo)
        sizes = np.diff(text.sentences).reshape(-1, 2)
        source, target = self.rooms
        kept = np.minimum(sizes, [source - 1, target - 2])
        count = len(sizes)
        return ExamplePlan(
            starts=text.sentences[:-1],
            ends=text.sentences[:-1] + kept.ravel(),
            segment=np.tile(np.array([0, 1], dtype=np.int8), count),
            first=np.arange(0, 2 * count + 1, 2),
            fields={"cut": (sizes - kept).sum(1)},
            opened=np.tile(np.array([False, True]), count),
        )

    def notes(self, text: Text) -> list[str]:
        lost = self.plan(text, np.zeros((), np.uint64)).fields["cut"]
        if not lost.any():
            return []
        pairs, tokens = int((lost > 0).sum()), int(lost.sum())
        return [
            f"{pairs:,} of {len(lost):,} pairs ({pairs / len(lost):.1%}) are longer than their room and lose "
            f"{tokens:,} tokens; objective.segments.length and target_length make more of it"
        ]
