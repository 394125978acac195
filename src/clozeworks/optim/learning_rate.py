"""The learning rate of each step: a pure function of its number, so a resumed run needs no state."""

import math

from clozeworks.optim.schedules import Schedule
from clozeworks.optim.settings import Train


def learning_rate(step: int, train: Train, width: int | None = None) -> float:
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
        return train.learning_rate * (1 + math.cos(math.pi * (1 - left))) / 2
    assert train.schedule == "linear", f"{train.schedule} has no course"
    return train.learning_rate * left


def warmup_steps(train: Train) -> int:
    """A share of the steps below 1, a number of steps from 1 on."""
    return round(train.warmup * train.steps if train.warmup < 1 else train.warmup)
