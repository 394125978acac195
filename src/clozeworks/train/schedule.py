"""The learning rate of each step: pure functions of its number, so a resumed run needs no state."""

import math

from clozeworks.train.settings import Train


def rate(step: int, train: Train) -> float:
    """The rate of update `step`, counted from 1.

    It climbs in a straight line to its peak at the last warm-up step P, then falls towards 0, which a linear or
    cosine schedule would reach one step after the last: no update of the run is wasted on a rate of 0.

    linear (T - t + 1) / (T - P + 1);  cosine (1 + cos(pi (t - P) / (T - P + 1))) / 2;  inverse_sqrt sqrt(P / t)
    """
    peak = max(warmup_steps(train), 1)
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


def warmup_steps(train: Train) -> int:
    """A share of the steps below 1, a number of steps from 1 on."""
    return round(train.warmup * train.steps if train.warmup < 1 else train.warmup)
