"""A result of a paper beside ours: what was measured on how many, and whether the two agree."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

LIMIT = 4.0  # standard errors; chance alone is farther away once in 16,000 times

Verdict = Literal["exact", "agrees", "outside", "the text decides"]


@dataclass(frozen=True, slots=True)
class Result:
    """`paper` as it is printed there, `expected` what ours is held against (None: the text decides)."""

    what: str
    paper: str
    source: str
    ours: float
    n: int
    expected: float | None = None
    error: float = 0.0  # standard error; 0: counted, not drawn

    @property
    def distance(self) -> float | None:
        """From what is expected, in standard errors."""
        return (self.ours - self.expected) / self.error if self.expected is not None and self.error else None

    @property
    def verdict(self) -> Verdict:
        if self.expected is None:
            return "the text decides"
        if self.distance is None:
            return "exact" if self.ours == self.expected else "outside"
        return "agrees" if abs(self.distance) <= LIMIT else "outside"

    @property
    def description(self) -> str:
        """The verdict for people."""
        return f"{self.verdict}, {abs(self.distance):.1f} s.e." if self.distance is not None else self.verdict

    @property
    def measured(self) -> str:
        if self.error:
            digits = max(2, int(np.ceil(-np.log10(self.error))) + 1)
            return f"{self.ours:.{digits}f} ± {self.error:.{digits}f}"
        return f"{self.ours:,.0f}" if self.ours == round(self.ours) else f"{self.ours:.4f}"


@dataclass(frozen=True, slots=True)
class Group:
    """Results that belong together, and what the reader should know of them."""

    title: str
    about: str
    results: list[Result]


def exact(what: str, paper: str, source: str, values: np.ndarray | float | int, expected: float, n: int) -> Result:
    """Something counted: one number, or many that must all be the same (the farthest one is shown)."""
    values = np.atleast_1d(np.asarray(values, dtype=np.float64))
    ours = float(values[np.argmax(np.abs(values - expected))]) if len(values) else expected
    return Result(what, paper, source, ours, n, expected)


def share(what: str, paper: str, source: str, hits: np.ndarray, expected: float | None) -> Result:
    """A share of independent draws."""
    n = len(hits)
    ours = int(hits.sum()) / max(n, 1)
    p = ours if expected is None else expected
    return Result(what, paper, source, ours, n, expected, float(np.sqrt(p * (1 - p) / max(n, 1))))


def mean(what: str, paper: str, source: str, values: np.ndarray, expected: float | None) -> Result:
    """The mean of independent draws."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return Result(what, paper, source, float(values.mean()) if n else 0.0, n, expected, error)
