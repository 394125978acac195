"""Which checkpoints of a run stay."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clozeworks.core.bounds import Count
from clozeworks.core.spec import Spec

Score = tuple[float, ...]  # of an evaluation, the lower the better; the second decides where the first is equal


@dataclass(slots=True)
class Keep(Spec):
    """The `last` few, each whose step is a multiple of `every`, and, if asked for, the `best`.

    The best one has the lowest held-out loss, or the best figure of its task, measured at its own step: `save_every`
    and `evaluate_every` should be multiples of one another. One that was not measured is never the best.
    """

    last: Count = 2
    every: Count | None = None
    best: bool = False

    def choose(self, steps: Iterable[int], scores: Mapping[int, Score], anchor: int | None = None) -> set[int]:
        """The steps whose checkpoints stay; `scores` are those of the evaluations by step.

        The guard may have to go back to the newest up to `anchor`, so that one stays, and so does the oldest after it,
        which takes its place when the run has gone on.
        """
        newest = sorted(steps, reverse=True)
        kept = set(newest[: self.last])
        if self.every is not None:
            kept |= {step for step in newest if step % self.every == 0}
        measured = [step for step in newest if step in scores and math.isfinite(scores[step][0])]
        if self.best and measured:
            kept.add(min(measured, key=lambda step: (scores[step], step)))
        if anchor is not None:
            kept |= {*[step for step in newest if step <= anchor][:1], *[step for step in newest if step > anchor][-1:]}
        return kept
