"""Rows that a fine-tuning run is measured on."""

import math
from collections.abc import Callable
from typing import Any

from clozeworks.core.batch import Batch
from clozeworks.core.token_info import Kind
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_outputs
from clozeworks.model import Model
from clozeworks.optim.keep import Score
from clozeworks.tasks.task import Task


class TaskEvaluator:
    """Answers to all rows of a table at each evaluation; the best model has the highest of the task's metric, and of
    those that have it the lowest loss."""

    def __init__(self, task: Task, table: Table, tokenizer: Tokenizer, kind: Kind, patience: int | None = None):
        self.task, self.table, self.patience = task, table, patience
        self.kind: Kind = kind
        self.labelled, self.pad = task.examples(table, tokenizer), tokenizer.filler
        self.notes: list[str] = []

    def measure(self, model: Model, teach: Callable[[Batch], Batch] | None) -> dict[str, Any]:
        results, loss = predict_outputs(model, self.task, self.labelled, self.kind, self.pad)
        task = self.task.calibrate(results, self.labelled, self.table)
        answers = task.answers(results, self.labelled, self.table)
        return {"loss": loss, **task.score(answers, self.table), **task.calibrated_fields()}

    def score(self, metrics: dict[str, Any]) -> Score:
        loss = metrics["loss"]
        return -metrics[self.task.metric], loss if loss is not None and math.isfinite(loss) else math.inf

    def warn(self, step: int, metrics: dict[str, Any]) -> None:
        """Nothing: early stopping looks after runs that do not learn."""

    def should_stop(self, scores: dict[int, Score]) -> bool:
        """By the metric alone: a lower loss does not make a run continue."""
        if self.patience is None or not scores:
            return False
        steps = sorted(scores)
        best = min(steps, key=lambda step: (scores[step][0], step))
        return len(steps) - 1 - steps.index(best) >= self.patience
