"""The learning rate of each step: pure functions of its number, so a resumed run needs no state."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clozeworks.errors import RecipeError
from clozeworks.spec import Spec

if TYPE_CHECKING:
    from clozeworks.train.settings import Train

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

    power: float = 1.0
    end: float = 0.0

    def check(self, where: str) -> None:
        if not self.power > 0:
            raise RecipeError(f"{where}.power", self.power, "a positive power is needed", "1 is a straight line")
        if not 0 <= self.end <= 1:
            raise RecipeError(f"{where}.end", self.end, "a part of the rate, 0 to 1, is needed", "0 is usual")

    def share(self, step: int, warmup: int, steps: int) -> float:
        peak = max(warmup, 1)
        if step <= peak:
            return step / peak
        return self.end + (1 - self.end) * ((steps - step + 1) / (steps - peak + 1)) ** self.power


@dataclass(slots=True)
class SlantedTriangular(Schedule):
    """A short steep climb, a long fall, never below 1 / ratio of the peak (Howard & Ruder 2018, section 3.2).

    (1 + p (ratio - 1)) / ratio, with C = floor(cut T), p = t / C up to C, then 1 - (t - C) / (T - C)

    `cut` says where the peak is; `train.warmup` is not read. The paper divides the fall by C (1 / cut - 1), which is
    T - C where cut T is whole and too little elsewhere: the rate would end below 0 (for T = 19 at -30/32 of its peak).
    """

    cut: float = 0.1
    ratio: float = 32.0

    def check(self, where: str) -> None:
        if not 0 < self.cut < 1:
            raise RecipeError(f"{where}.cut", self.cut, "a share of the steps, 0 to 1, is needed", "0.1 is usual")
        if not self.ratio >= 1:
            raise RecipeError(f"{where}.ratio", self.ratio, "1 or more is needed", "32 is usual")

    def share(self, step: int, warmup: int, steps: int) -> float:
        peak = max(math.floor(self.cut * steps), 1)
        height = step / peak if step <= peak else 1 - (step - peak) / (steps - peak)
        return (1 + height * (self.ratio - 1)) / self.ratio


def rate(step: int, train: "Train", width: int | None = None) -> float:
    """The rate of update `step`, counted from 1; `width` is the model's, which noam alone asks for.

    It climbs in a straight line to its peak at the last warm-up step P, then falls towards 0, which a linear or
    cosine schedule would reach one step after the last: no update of the run is wasted on a rate of 0.

    linear (T - t + 1) / (T - P + 1);  cosine (1 + cos(pi (t - P) / (T - P + 1))) / 2;  inverse_sqrt sqrt(P / t), which
    with a peak rate of 1 / sqrt(width P) is that of Vaswani et al. 2017;  constant 1.

    warmup_linear min(t / P, 1) (1 - t / (T + 1)): the fall begins with the first step and multiplies the warm-up too,
    so the peak is a little below the rate. The published code (Radford et al. 2018) counts from 0, where its rate is 0:
    this is its course of T + 1 updates without that first one.

    noam width^-0.5 min(t^-0.5, t P^-1.5) (Vaswani et al. 2017, 5.3): the same course as inverse_sqrt, with a height of
    its own that `learning_rate` multiplies, where 1 is the paper's; wider models and longer warm-ups have lower peaks.
    """
    if isinstance(train.schedule, Schedule):
        return train.learning_rate * train.schedule.share(step, warmup_steps(train), train.steps)
    peak = max(warmup_steps(train), 1)
    if train.schedule == "noam":
        assert width is not None, "noam depends on the width of the model"
        return train.learning_rate * min(step**-0.5, step * peak**-1.5) / math.sqrt(width)
    if train.schedule == "warmup_linear":
        return train.learning_rate * min(step / peak, 1.0) * (1 - step / (train.steps + 1))
    if step <= peak:
        return train.learning_rate * step / peak
    if train.schedule == "constant":
        return train.learning_rate
    if train.schedule == "inverse_sqrt":
        return train.learning_rate * math.sqrt(peak / step)
    left = (train.steps - step + 1) / (train.steps - peak + 1)
    if train.schedule == "cosine":
        left = (1 + math.cos(math.pi * (1 - left))) / 2
    return train.learning_rate * left


def warmup_steps(train: "Train") -> int:
    """A share of the steps below 1, a number of steps from 1 on."""
    return round(train.warmup * train.steps if train.warmup < 1 else train.warmup)
