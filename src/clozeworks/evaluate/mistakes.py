"""What a model gets wrong: class by class, one class for another, and row by row."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clozeworks.data.tables.table import Table
from clozeworks.metrics.classes import Confusion, OfClass
from clozeworks.tasks.task import Answers, Task

WORST = 10
LONGEST = 300  # characters that are shown of a text


@dataclass(frozen=True, slots=True)
class Mistake:
    """A row that was answered wrongly, and how badly."""

    where: str  # the row, as messages name it
    row: dict[str, str]  # what the model was shown
    right: str
    predicted: str
    badness: float


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Figures by class, the confusion matrix where each row has one class, and the worst mistakes."""

    classes: dict[str, OfClass] = field(default_factory=dict)  # or types of entities
    confusion: Confusion | None = None
    worst: list[Mistake] = field(default_factory=list)


def mistakes(task: Task, answers: Answers, table: Table, worst: int = WORST) -> Mistakes:
    """`worst` so many of the wrong answers, the surest or furthest off first, in the order of the rows where alike."""
    classes, matrix = task.class_report(answers, table)
    bad = task.badness(answers, table)
    order = [at for at in np.argsort(-bad, kind="stable").tolist() if bad[at] > 0][:worst]
    return Mistakes(classes, matrix, [_mistake(task, answers, table, at, float(bad[at])) for at in order])


def _mistake(task: Task, answers: Answers, table: Table, at: int, badness: float) -> Mistake:
    row, answer = table.rows[at], answers[at]
    shown = {name: _short(row[name]) for name in task.columns if row.get(name)}
    right, answered = task.describe_truth(row), task.describe_answer(answer)
    return Mistake(table.where(at), shown, _short(right), _short(answered), badness)


def _short(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
