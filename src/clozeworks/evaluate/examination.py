"""How good a model's answers to the rows of a table are."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clozeworks.core.token_info import Kind
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_records
from clozeworks.metrics.bootstrap import intervals
from clozeworks.model import Model
from clozeworks.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Examination:
    """Answers to every row, metrics by their usual names, and of each metric the bounds of 95 % of resampled tables."""

    answers: list[dict[str, Any]]
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    loss: float | None


def examine(model: Model, task: Task, table: Table, tokenizer: Tokenizer, kind: Kind, seed: int = 0) -> Examination:
    answers, loss = predict_records(model, task, table, tokenizer, kind, truth=True)
    return score_answers(task, answers, table, loss, seed)


def score_answers(
    task: Task, answers: list[dict[str, Any]], table: Table, loss: float | None = None, seed: int = 0
) -> Examination:
    """Figures and intervals of answers that are there already."""

    def score(rows: np.ndarray) -> dict[str, float]:
        return task.score([answers[row] for row in rows], table.some(rows.tolist()))

    return Examination(answers, task.score(answers, table), intervals(score, len(table), seed), loss)
