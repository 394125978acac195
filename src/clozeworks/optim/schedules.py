"""Learning rate schedules, as parts of a recipe."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

from clozeworks.core.bounds import GREATEST, Bound, Part, Positive, Share
from clozeworks.core.spec import Spec

Word = Literal["linear", "cosine", "inverse_sqrt", "constant", "warmup_linear", "noam"]  # the schedules without fields


@dataclass(slots=True)
class Schedule(Spec):
    """A course of the rate with fields of its own."""

    @abstractmethod
    def share(self, step: int, warmup: int, steps: int) -> float:
        """The part of the peak rate that update `step` of `steps` gets, counted from 1."""


@dataclass(slots=True)
class Polynomial(Schedule):
    """After the warm-up P, a power of what is left of the run, down to `end`, a part of the peak rate.

    end + (1 - end) ((T - t + 1) / (T - P + 1))^power. Power 1 and end 0 is the linear schedule.
    """

    power: Positive = 1.0
    end: Share = 0.0

    def share(self, step: int, warmup: int, steps: int) -> float:
        peak = max(warmup, 1)
        if step <= peak:
            return step / peak
        return self.end + (1 - self.end) * ((steps - step + 1) / (steps - peak + 1)) ** self.power


@dataclass(slots=True)
class WarmupStableDecay(Schedule):
    """The peak rate until the last `decay` of the steps, then down to 0 (WSD: Hu et al. 2024; Hägele et al. 2024).

    1 - sqrt((t - S) / (T - S + 1)) from S = max(T - floor(decay T), P) on

    A run that is stopped before S can be continued with more steps as if these had been planned.
    """

    decay: Part = 0.2

    def share(self, step: int, warmup: int, steps: int) -> float:
        peak = max(warmup, 1)
        stable = max(steps - math.floor(self.decay * steps), peak)
        if step <= stable:
            return min(step / peak, 1.0)
        return 1 - math.sqrt((step - stable) / (steps - stable + 1))


@dataclass(slots=True)
class SlantedTriangular(Schedule):
    """A short steep climb, a long fall, never below 1 / ratio of the peak (Howard & Ruder 2018, section 3.2).

    (1 + p (ratio - 1)) / ratio, with C = floor(cut T), p = t / C up to C, then 1 - (t - C) / (T - C)

    `cut` says where the peak is; `train.warmup` is not read. The paper divides the fall by C (1 / cut - 1), which is
    T - C where cut T is whole and too little elsewhere: the rate would end below 0 (for T = 19 at -30/32 of its peak).
    """

    cut: Part = 0.1
    ratio: Annotated[float, Bound(1, GREATEST)] = 32.0

    def share(self, step: int, warmup: int, steps: int) -> float:
        peak = max(math.floor(self.cut * steps), 1)
        height = step / peak if step <= peak else 1 - (step - peak) / (steps - peak)
        return (1 + height * (self.ratio - 1)) / self.ratio
