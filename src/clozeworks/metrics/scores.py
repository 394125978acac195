"""How well numbers were predicted. Where one side does not vary nothing goes together: the correlation is 0."""

from collections.abc import Sequence

import numpy as np


def pearson(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """sum (x - mean x)(y - mean y) / (|x - mean x| |y - mean y|)."""
    x, y = (np.asarray(values, np.float64) for values in (truth, predicted))
    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return 0.0
    x, y = _direction(x), _direction(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's of the ranks; equal values share the mean of theirs."""
    return pearson(*(ranks(np.asarray(values, np.float64)).tolist() for values in (truth, predicted)))


def mean_squared_error(truth: Sequence[float], predicted: Sequence[float]) -> float:
    difference = np.asarray(truth, np.float64) - np.asarray(predicted, np.float64)
    return float(np.mean(difference**2)) if len(difference) else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; of equal values each has the mean."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def _direction(values: np.ndarray) -> np.ndarray:
    """Around its mean, of length 1; scaled first, so that no square overflows or vanishes."""
    values = values / np.abs(values).max()
    around = values - values.mean()
    size = np.abs(around).max()
    if not size:
        return around
    around /= size
    return around / np.linalg.norm(around)
