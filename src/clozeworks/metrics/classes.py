"""How well classes were predicted: metrics from a matrix of counts.

Where a figure would be nought divided by nought it is 0: the F1 of a class that was neither there nor predicted,
Matthews' coefficient where one class is all there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class OfClass(NamedTuple):
    """Of those predicted to be of a class the share that is, of those that are the share predicted, and their harmonic
    mean."""

    precision: float
    recall: float
    f1: float
    support: int  # how many there are


@dataclass(frozen=True, slots=True)
class Confusion:
    """counts[i, j]: how many of class i were predicted to be of class j."""

    labels: tuple[str, ...]
    counts: np.ndarray  # int64 [classes, classes]

    @property
    def accuracy(self) -> float:
        return _share(np.trace(self.counts), self.counts.sum())

    @property
    def macro_f1(self) -> float:
        """The mean of the classes that are there or were predicted."""
        seen = (self.counts.sum(0) + self.counts.sum(1)) > 0
        return _mean([each.f1 for each, there in zip(self.classes.values(), seen, strict=True) if there])

    @property
    def micro_f1(self) -> float:
        """Of one class each, every wrong one is predicted too much once and too little once: it is the accuracy."""
        return self.accuracy

    @property
    def matthews(self) -> float:
        """The correlation of truth and predictions (Matthews 1975), for any number of classes (Gorodkin 2004)."""
        counts = self.counts.astype(np.float64)
        there, predicted, total = counts.sum(1), counts.sum(0), counts.sum()
        cover = np.trace(counts) * total - there @ predicted
        spread = (total**2 - there @ there) * (total**2 - predicted @ predicted)
        return float(cover / np.sqrt(spread)) if spread > 0 else 0.0

    @property
    def classes(self) -> dict[str, OfClass]:
        right, predicted, there = np.diag(self.counts), self.counts.sum(0), self.counts.sum(1)
        return {name: _of(*counts) for name, *counts in zip(self.labels, right, predicted, there, strict=True)}


def confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None = None) -> Confusion:
    """The matrix for these classes in this order; without any, all that occur, sorted."""
    names = tuple(sorted({*truth, *predicted}) if labels is None else labels)
    number = {name: at for at, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, ([number[each] for each in truth], [number[each] for each in predicted]), 1)
    return Confusion(names, counts)


@dataclass(frozen=True, slots=True)
class Several:
    """Decisions on several labels a text: of each label how many were right, predicted and there."""

    labels: tuple[str, ...]
    right: np.ndarray  # int64 [labels]
    predicted: np.ndarray
    there: np.ndarray
    accuracy: float  # the share of texts of which every label is right

    @property
    def macro_f1(self) -> float:
        return _mean([each.f1 for each in self.classes.values()])

    @property
    def micro_f1(self) -> float:
        """All decisions together."""
        return _of(self.right.sum(), self.predicted.sum(), self.there.sum()).f1

    @property
    def classes(self) -> dict[str, OfClass]:
        columns = zip(self.labels, self.right, self.predicted, self.there, strict=True)
        return {name: _of(*counts) for name, *counts in columns}


def several(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]) -> Several:
    right, claimed, there = (np.zeros(len(labels), np.int64) for _ in range(3))
    number, whole = {name: at for at, name in enumerate(labels)}, 0
    for ours, theirs in zip(predicted, truth, strict=True):
        whole += set(ours) == set(theirs)
        for names, counts in ((set(ours) & set(theirs), right), (set(ours), claimed), (set(theirs), there)):
            counts[[number[name] for name in names]] += 1
    return Several(tuple(labels), right, claimed, there, _share(whole, len(truth)))


def _of(right: int, predicted: int, there: int) -> OfClass:
    return OfClass(_share(right, predicted), _share(right, there), _share(2 * right, predicted + there), int(there))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
