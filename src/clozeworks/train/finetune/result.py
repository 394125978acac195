"""What fine-tuning leaves behind."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from clozeworks.core.spec import Spec
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.train.run import Result


@dataclass(frozen=True)
class FinetuneResult:
    """A model directory, and how good its answers are on rows that it has not learned from.

    With several seeds, `metrics` and `intervals` are those of the best of them, which is the model of `out`. With
    `folds` they are of the answers of as many models, each to the rows that it did not learn from; that of `out`
    learned from all.
    """

    out: Path
    task: str
    rows: dict[str, int]  # of each table
    runs: dict[int, Result]  # by seed
    metrics: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    seeds: dict[int, dict[str, float]] = field(default_factory=dict)  # metrics at the best step of each
    teacher: dict[str, float] = field(default_factory=dict)  # metrics of a teacher of rows without labels
    folds: int | None = None
    notes: list[str] = field(default_factory=list)
    signal: int = 0  # that asked it to stop
    parts: tuple[type[Spec], ...] = ()  # the task's own class, which may be the caller's

    @property
    def finished(self) -> bool:
        return not self.signal and all(run.finished for run in self.runs.values())

    @cached_property
    def model(self) -> TextEncoder:
        return load(self.out, self.parts)

    @property
    def mean(self) -> dict[str, float]:
        """Over the seeds."""
        return {name: float(np.mean(values)) for name, values in self._values().items()}

    @property
    def spread(self) -> dict[str, float]:
        """The standard deviation over the seeds, of a sample; nothing where there is one."""
        return {name: float(np.std(v, ddof=1)) for name, v in self._values().items() if len(v) > 1}

    def _values(self) -> dict[str, list[float]]:
        collected: dict[str, list[float]] = {}
        for metrics in self.seeds.values():
            for name, value in metrics.items():
                if value is not None:  # a loss that is no number, or of rows that have none
                    collected.setdefault(name, []).append(value)
        return collected
