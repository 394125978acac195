"""Text classification and regression: which class is a text of, or what number has it?"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError
from clozeworks.core.spec import LATE
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.metrics.classes import confusion, several
from clozeworks.metrics.scores import mean_squared_error, pearson, spearman
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.linear import Linear
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.task import HeadLayer, Task

LABEL = "class_label"  # the column of the batch


@dataclass(slots=True)
class Classify(Task):
    """logits = W s + b of a summary s of one text: cross-entropy of its class.

    With `many` a text has any number of labels: a decision for each of them, -log sigmoid of the right one, a mean over
    the labels. `graded`, it has a number instead, the column score: one output, which begins at the `middle` of the
    numbers, and the square of its error. With `balance` the n_c rows of class c of k weigh n / (k n_c) each, so that
    every class has the same say. `weights` and `middle` are those of the rows that the task was fitted to.
    """

    name: ClassVar[str] = "classify"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    summary: Summary = field(default_factory=Summary)
    bias: bool = True
    many: bool = False
    graded: bool = field(default=False, metadata=LATE)
    balance: bool = field(default=False, metadata=LATE)
    weights: tuple[float, ...] = field(default=(), metadata=LATE)
    middle: float = field(default=0.0, metadata=LATE)

    @property
    def metric(self) -> str:
        return "spearman" if self.graded else "accuracy"

    @property
    def truth(self) -> tuple[str, ...]:
        return ("score",) if self.graded else ("label",)

    @property
    def outputs(self) -> int:
        return 1 if self.graded else len(self.labels)

    @property
    def pools(self) -> bool:
        return self.summary.dense == "pooler"

    def computed(self, batch: Batch) -> bool:
        return LABEL in batch.example

    def count(self, batch: Batch) -> int:
        return len(batch.example[LABEL]) if self.computed(batch) else 0

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if self.everywhere else self.summary.read_positions(batch)

    def build(self, width: int, embed: EmbedLayer) -> "ClassifyLayer":
        return ClassifyLayer(self, width, embed)

    def with_labels(self, table: Table) -> "Classify":
        """With rows that have a score and no label it is graded."""
        if self.graded or (len(table) and all("score" in row and row.get("label") is None for row in table.rows)):
            middle = float(self._scores(table).mean()) if len(table) else 0.0
            return dataclasses.replace(self, graded=True, many=False, labels=(), weights=(), middle=middle)
        rows = [labels_of(row["label"]) for row in table.rows]
        found = sorted({label for row in rows for label in row})
        many = any(isinstance(row["label"], list | tuple) for row in table.rows)
        if len(found) < 2 and not many:
            given = f"one class only, {next(iter(found), 'none')}"
            raise InputError(table.name, given, "two classes are needed to tell apart", "add rows of another class")
        if self.balance and many:
            needed = "classes are balanced where a text is of one"
            raise InputError(table.name, "rows of several labels", needed, "leave balance out")
        counts = [sum(row == [label] for row in rows) for label in found] if self.balance else []
        weights = tuple(len(rows) / (len(found) * count) for count in counts)
        return dataclasses.replace(self, labels=tuple(found), many=many, weights=weights)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        labelled = self.laid(table, tokenizer)
        if truth:
            values = self._scores(table) if self.graded else self._truth(table)
            labelled.examples.fields[LABEL] = np.repeat(values, np.diff(labelled.first), axis=0)
        return labelled

    def laid(self, table: Table, tokenizer: Tokenizer) -> Labelled:
        """The texts of the rows as examples."""
        texts = tokenizer.encode([row["text"] for row in table.rows])
        return Labelled.one_each(self.template.lay(tokenizer, texts).examples)

    def _truth(self, table: Table) -> np.ndarray:
        rows = [[self.number(each, table, n) for each in labels_of(row["label"])] for n, row in enumerate(table.rows)]
        if not self.many:
            if (at := next((n for n, row in enumerate(rows) if len(row) != 1), None)) is not None:
                given = f"{len(rows[at])} labels"
                raise InputError(table.where(at), given, "the model gives each row one", "mend the row")
            return np.array([row[0] for row in rows], np.int64)
        found = np.zeros((len(rows), len(self.labels)), np.float32)
        for at, row in enumerate(rows):
            found[at, row] = 1.0
        return found

    def _scores(self, table: Table) -> np.ndarray:
        found = []
        for at, row in enumerate(table.rows):
            try:
                value = float(row["score"])
            except (TypeError, ValueError):
                value = math.nan
            if not math.isfinite(value):
                raise InputError(table.where(at), f"score {row['score']!r}", "a number is needed", "mend the row")
            found.append(value)
        return np.array(found, np.float32)

    def answers(self, found: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        values = np.stack(found)[labelled.first[:-1]] if len(found) else np.zeros((0, self.outputs), np.float32)
        logits = torch.from_numpy(values)
        if self.graded:
            return [{"score": value} for value in logits[:, 0].tolist()]
        chances = logits.sigmoid() if self.many else logits.softmax(-1)
        answers = []
        for row in chances.tolist():
            scores = dict(zip(self.labels, row, strict=True))
            likely = [name for name, chance in scores.items() if chance > 0.5]
            answers.append({"label": likely if self.many else max(scores, key=scores.__getitem__), "scores": scores})
        return answers

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """accuracy, f1 (the mean over the classes) and mcc; of two classes also the F1 of the second by its name.

        Of several labels: accuracy (every label right), f1 and f1_micro. Of scores: pearson, spearman and mse.
        """
        if self.graded:
            truth, told = [float(row["score"]) for row in table.rows], [answer["score"] for answer in answers]
            figures = {"pearson": pearson, "spearman": spearman, "mse": mean_squared_error}
            return {name: figure(truth, told) for name, figure in figures.items()}
        truth, told = ([labels_of(each["label"]) for each in rows] for rows in (table.rows, answers))
        if self.many:
            found = several(truth, told, self.labels)
            return {"accuracy": found.accuracy, "f1": found.macro_f1, "f1_micro": found.micro_f1}
        found = confusion([row[0] for row in truth], [row[0] for row in told], self.labels)
        figures = {"accuracy": found.accuracy, "f1": found.macro_f1, "mcc": found.matthews}
        if len(self.labels) == 2:
            figures[f"f1_{self.labels[1]}"] = found.classes[self.labels[1]].f1
        return figures


def labels_of(given: object) -> list[str]:
    """One label or several, as strings."""
    return [str(each) for each in given] if isinstance(given, list | tuple) else [str(given)]


class Out(Linear, CustomInit):
    """Numbers begin around their middle, not around 0: what a head learns first would be no more than that."""

    def __init__(self, spec: Classify, width: int):
        super().__init__(width, spec.outputs, bias=spec.bias)
        self.middle = spec.middle

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.constant_(parameter, self.middle)


class ClassifyLayer(HeadLayer):
    weights: Tensor | None

    def __init__(self, spec: Classify, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.many, self.graded = spec.many, spec.graded
        self.summary = spec.summary.build(self.width)
        self.out = Out(spec, spec.summary.out_width(self.width))
        self.register_buffer("weights", torch.tensor(spec.weights) if spec.weights else None, persistent=False)

    def summed(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N, D]: what each example is judged by."""
        return self.summary(self.read(hidden, batch), hidden, batch)

    def logits(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N, outputs]."""
        return self.out(self.summed(hidden, batch))

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        logits, truth = self.logits(hidden, batch).float(), batch.example[LABEL]
        if self.graded:
            return F.mse_loss(logits[:, 0], truth, reduction="sum"), {}
        if self.many:
            loss = F.binary_cross_entropy_with_logits(logits, truth, reduction="sum") / logits.shape[1]
            right = ((logits > 0) == truth.bool()).all(1).sum()
        else:
            loss = F.cross_entropy(logits, truth, self.weights, reduction="sum")
            right = (logits.argmax(-1) == truth).sum()
        return loss, {"class_accuracy": right}

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        return {"logits": self.logits(hidden, batch)}

    def found(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        return list(self.logits(hidden, batch).float().cpu().numpy())
