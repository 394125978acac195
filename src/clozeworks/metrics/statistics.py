"""How sure one may be of a difference: intervals and tests over the same examples, and over seeds.

Two systems that answered the same examples are compared example by example, so that what is hard for both cancels out.

    mean_difference      of figures that are means over examples (accuracy, loss): bootstrap of the differences
    metric_differences   of figures of a whole set (F1, BLEU, Spearman, MCC), which are computed again for each sample
    randomization_test   how often a difference this large comes of exchanging the two systems' answers by chance
    mcnemar              the same for right and wrong, exactly
    mean_interval        of a few runs that differ by their seed: Student's t
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clozeworks.metrics.bootstrap import intervals

DRAWS = 2000
EXACT = 14  # examples, of which every exchange is tried
CELLS = 1 << 22  # of an array that holds several samples at once


class Difference(NamedTuple):
    """One figure less the other, and the bounds of its interval."""

    value: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


class Mean(NamedTuple):
    """A mean, and the bounds of its interval; without a second value nobody knows them."""

    value: float
    low: float
    high: float


def mean_difference(
    ours: Sequence[float] | np.ndarray,
    theirs: Sequence[float] | np.ndarray,
    weights: Sequence[float] | np.ndarray | None = None,
    *,
    seed: int = 0,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Difference:
    """mean(ours) - mean(theirs) over the same examples, with its percentile bootstrap interval (Efron 1979).

    With `weights` an example counts so often, as a row of a text does that has so many predictions: the figure is
    sum w x / sum w, of a sample as of the whole.
    """
    difference, weight = _pair(ours, theirs), _weights(weights, len(ours))
    if not len(difference):
        return Difference(math.nan, math.nan, math.nan)
    draw, count, values = np.random.default_rng(seed), len(difference), np.empty(draws)
    step = max(1, CELLS // count)
    for begin in range(0, draws, step):
        rows = draw.integers(0, count, (min(step, draws - begin), count))
        values[begin : begin + step] = (weight * difference)[rows].sum(1) / weight[rows].sum(1)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Difference(float(np.average(difference, weights=weight)), float(low), float(high))


def metric_differences(
    ours: Callable[[np.ndarray], Mapping[str, float]],
    theirs: Callable[[np.ndarray], Mapping[str, float]],
    count: int,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Difference]:
    """Of each figure that both give for some of `count` examples, ours less theirs, with the interval of the same
    figure computed again for samples of as many examples, the same for both (Koehn 2004)."""

    def difference(rows: np.ndarray) -> dict[str, float]:
        one, other = ours(rows), theirs(rows)
        return {name: one[name] - other[name] for name in one if name in other}

    if count < 1:
        return {}
    bounds = intervals(difference, count, seed, level)
    return {name: Difference(value, *bounds[name]) for name, value in difference(np.arange(count)).items()}


def randomization_test(
    ours: Sequence[float] | np.ndarray,
    theirs: Sequence[float] | np.ndarray,
    *,
    seed: int = 0,
    draws: int = 10 * DRAWS,
) -> float:
    """The two-sided p of a mean difference under exchange of the two figures of any example (Fisher 1935).

    Of few examples every exchange is tried, and p is exact; of many, drawn ones are, and the observed is one of them.
    """
    difference = _pair(ours, theirs)
    difference = difference[difference != 0]
    if not len(difference):
        return 1.0
    size = np.abs(difference.sum()) * (1 - 1e-12)  # sums in another order differ in their last digit
    if len(difference) <= EXACT:
        codes = np.arange(1 << len(difference))[:, None] >> np.arange(len(difference)) & 1
        return float((np.abs((1 - 2 * codes) @ difference) >= size).mean())
    draw, reached, step = np.random.default_rng(seed), 0, max(1, CELLS // len(difference))
    for begin in range(0, draws, step):
        signs = 1 - 2 * draw.integers(0, 2, (min(step, draws - begin), len(difference)), np.int8)
        reached += int((np.abs(signs @ difference) >= size).sum())
    return (reached + 1) / (draws + 1)


def mcnemar(ours: Sequence[bool] | np.ndarray, theirs: Sequence[bool] | np.ndarray) -> float:
    """The exact two-sided p that two systems are right equally often (McNemar 1947): of the examples that one alone
    has right, a share of one half is binomial."""
    one, other = np.asarray(ours, bool), np.asarray(theirs, bool)
    _pair(one, other)
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    trials = only_one + only_other
    whole = math.lgamma(trials + 1) - trials * math.log(2)
    tail = (whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(min(only_one, only_other) + 1))
    return min(1.0, 2 * math.fsum(map(math.exp, tail)))


def mean_interval(values: Sequence[float], level: float = 0.95) -> Mean:
    """The mean of runs, and its interval by Student's t: mean +- t s / sqrt(n)."""
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Mean(mean, math.nan, math.nan)
    deviation = float(np.std(np.asarray(values, np.float64), ddof=1))
    half = student_quantile((1 + level) / 2, len(values) - 1) * deviation / math.sqrt(len(values))
    return Mean(mean, mean - half, mean + half)


def student_quantile(share: float, freedom: int) -> float:
    """The t below which so large a share of Student's distribution lies, of one half or more."""
    low, high = 0.0, 1.0
    while _student(high, freedom) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _student(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0: a finite sum for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 + inside) / 2


def _pair(ours: Sequence[float] | np.ndarray, theirs: Sequence[float] | np.ndarray) -> np.ndarray:
    """One less the other, float64 [n]."""
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"{one.shape} and {other.shape}: one figure of each system for each example is needed")
    return one - other


def _weights(given: Sequence[float] | np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count) if given is None else np.asarray(given, np.float64)
