"""How far a figure would move with other rows."""

from collections.abc import Callable, Mapping

import numpy as np

DRAWN = 1000  # samples at most
FEWEST = 100
ROWS = 300_000  # that all samples hold together, about: a large set needs fewer samples of it


def intervals(
    score: Callable[[np.ndarray], Mapping[str, float]], count: int, seed: int = 0, level: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Of each figure that `score` gives for some of `count` rows the bounds that hold `level` of its values on samples
    of as many rows, drawn with replacement (Efron 1979): the percentile interval. The same for the same seed.

    A sample whose figure is not a number (one class only) says nothing; without any that does, nor does the interval.
    """
    if count < 1:
        return {}
    draw = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(max(FEWEST, min(DRAWN, ROWS // count))):
        for name, value in score(draw.integers(0, count, count)).items():
            drawn.setdefault(name, []).append(float(value))
    bounds = {}
    for name, values in drawn.items():
        sound = np.array(values)[np.isfinite(values)]
        low, high = np.quantile(sound, [(1 - level) / 2, (1 + level) / 2]) if len(sound) else (np.nan, np.nan)
        bounds[name] = (float(low), float(high))
    return bounds
