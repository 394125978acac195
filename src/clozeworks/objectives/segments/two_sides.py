"""The plan of examples that have two sides."""

from collections.abc import Callable

import numpy as np

from clozeworks.core.examples import ExamplePlan
from clozeworks.objectives.segments.sentences import BLOCK

Sides = tuple[np.ndarray, np.ndarray, np.ndarray]  # [starts, ends] of A and of B, and the label


def two_sides(begin: np.ndarray, sides: Callable[[np.ndarray], Sides]) -> ExamplePlan:
    """[CLS] A [SEP] B [SEP] for each example by its first sentence; label 0: B follows A, 1: it does not."""
    count = len(begin)
    starts, ends = np.empty((count, 2), dtype=np.int64), np.empty((count, 2), dtype=np.int64)
    label = np.empty(count, dtype=np.int64)
    for at in range(0, count, BLOCK):
        here = slice(at, at + BLOCK)
        a, b, label[here] = sides(begin[here])
        starts[here, 0], ends[here, 0] = a
        starts[here, 1], ends[here, 1] = b
    return ExamplePlan(
        starts=starts.ravel(),
        ends=ends.ravel(),
        segment=np.tile(np.array([0, 1], dtype=np.int8), count),
        first=np.arange(0, 2 * count + 1, 2),
        fields={"pair_label": label},
    )
