"""Text classification and regression: which class is a text of, or what number has it?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Finite, NonNegative
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.metrics.classes import Confusion, OfClass, Several, confusion, several
from clozeworks.metrics.scores import mean_squared_error, pearson, spearman
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.linear import Linear
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.task import (
    Answers,
    HeadParts,
    PretrainedHead,
    Problem,
    SummaryHeadLayer,
    SummaryTask,
    read_scores,
)

LABEL = "class_label"  # the column of the batch
MANY = 1000  # labels, from which on one row of each is taken for a slip


@dataclass(slots=True)
class Classify(SummaryTask):
    """Text classification and regression (Devlin et al. 2018, 4.1): logits = W s + b of a summary s of one text,
    cross-entropy of its class.

    `problem` = multi_label: a text has any number of labels, a decision for each, -log sigmoid of the right one, a mean
    over the labels. regression: it has a number instead, the column score: one output, which begins at the `middle` of
    the numbers, and the square of its error. With `balance` the n_c rows of class c of k weigh n / (k n_c) each, so
    that every class has the same say. `weights` and `middle` are those of the rows that the task was fitted to.

    A row that brings the scores of a teacher along, a probability p_c for each label as `predict` writes them, is
    learned as -sum_c p_c log q_c (Hinton et al. 2015, at temperature 1).

    Shapes: [B, L, D] -> s [N, D] -> logits [N, labels]. Costs one pass of the encoder, and D x labels an example.
    """

    name: ClassVar[str] = "classify"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    maybe: ClassVar[tuple[str, ...]] = ("scores",)
    target_field: ClassVar[str] = LABEL
    pipeline_tag: ClassVar[str | None] = "text-classification"
    bias: bool = True
    problem: Problem = "single_label"
    balance: bool = False
    weights: tuple[NonNegative, ...] = ()
    middle: Finite = 0.0

    @property
    def many(self) -> bool:
        """Whether a text has any number of labels."""
        return self.problem == "multi_label"

    @property
    def graded(self) -> bool:
        """Whether a text has a number instead of a label."""
        return self.problem == "regression"

    @classmethod
    def truth_columns(cls) -> tuple[str, ...]:
        """A text may have a class or a number."""
        return ("label|score",)

    @classmethod
    def from_head(cls, head: PretrainedHead) -> Self:
        made = cls(template=head.template, summary=head.summary or Summary(), bias=head.bias)
        if head.problem == "regression" and len(head.labels) > 1:
            needed = "one score of a text is supported"
            raise InputError("config.json", f"{len(head.labels)} scores", needed, "choose another model")
        if head.problem == "regression":
            return dataclasses.replace(made, problem="regression")
        return dataclasses.replace(made, labels=head.labels, problem=head.problem)

    def head_config(self) -> dict[str, Any]:
        return {"problem_type": self.problem if self.graded else f"{self.problem}_classification"}

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.labels or ("score",)

    def head_parts(self) -> HeadParts:
        return dataclasses.replace(SummaryTask.head_parts(self), bias=self.bias)

    def without_bias(self) -> Self:
        return dataclasses.replace(self, bias=False)

    def for_rows(self, table: Table) -> Self:
        """Graded where rows have scores and no labels."""
        scored = all(row.get("label") is None and "score" in row for row in table.rows)
        return dataclasses.replace(self, problem="regression") if scored else self

    @property
    def metric(self) -> str:
        return "spearman" if self.graded else "accuracy"

    @property
    def truth(self) -> tuple[str, ...]:
        return ("score",) if self.graded else ("label",)

    @property
    def outputs(self) -> int:
        return 1 if self.graded else len(self.labels)

    def build(self, width: int, embed: EmbedLayer) -> "ClassifyLayer":
        return ClassifyLayer(self, width, embed)

    def with_labels(self, table: Table) -> "Classify":
        """With rows that have a score and no label it is graded."""
        if self.graded or (len(table) and all("score" in row and row.get("label") is None for row in table.rows)):
            middle = float(read_scores(table).astype(np.float32).mean()) if len(table) else 0.0
            return dataclasses.replace(self, problem="regression", labels=(), weights=(), middle=middle)
        rows = [labels_of(row["label"]) for row in table.rows]
        taught = {label for row in table.rows for label in row.get("scores") or ()}
        labels = sorted(taught.union(*rows))
        many = any(isinstance(row["label"], list | tuple) for row in table.rows)
        if len(labels) > MANY and len(rows) < 2 * len(labels):
            given, needed = f"{len(labels):,} labels for {len(rows):,} rows", "a label needs several rows to be learned"
            raise InputError(table.name, given, needed, "is it a score or an id? name another by --columns label=NAME")
        if len(labels) < 2 and not many:
            given = f"one class only, {next(iter(labels), 'none')}"
            raise InputError(table.name, given, "two classes are needed to tell apart", "add rows of another class")
        if self.balance and many:
            needed = "classes are balanced where a text is of one"
            raise InputError(table.name, "rows of several labels", needed, "leave balance out")
        counts = [sum(row == [label] for row in rows) for label in labels] if self.balance else []
        if 0 in counts:
            given, needed = f"no row of class {labels[counts.index(0)]}", "classes are balanced by their rows"
            raise InputError(table.name, given, needed, "add a row of it, or leave balance out")
        problem: Problem = "multi_label" if many else "single_label"
        weights = tuple(len(rows) / (len(labels) * count) for count in counts)
        return dataclasses.replace(self, labels=tuple(labels), problem=problem, weights=weights)

    def describe_rows(self, table: Table) -> list[str]:
        taught = sum(bool(row.get("scores")) for row in table.rows)
        return [f"{taught:,} of {len(table):,} rows bring scores along and are learned as sure as these"] * bool(taught)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        labelled = self.make_examples(table, tokenizer)
        if truth:
            values = read_scores(table).astype(np.float32) if self.graded else self._truth(table)
            labelled.examples.fields[LABEL] = np.repeat(values, np.diff(labelled.first), axis=0)
        return labelled

    def make_examples(self, table: Table, tokenizer: Tokenizer) -> Labelled:
        """The texts of the rows as examples."""
        texts = tokenizer.encode([row["text"] for row in table.rows])
        return Labelled.one_each(self.template.lay(tokenizer, texts).examples)

    def _truth(self, table: Table) -> np.ndarray:
        rows = [[self.number(each, table, n) for each in labels_of(row["label"])] for n, row in enumerate(table.rows)]
        if not self.many:
            if (at := next((n for n, row in enumerate(rows) if len(row) != 1), None)) is not None:
                given = f"{len(rows[at])} labels"
                raise InputError(table.where(at), given, "the model gives each row one", "mend the row")
            if any(row.get("scores") for row in table.rows):
                return self._probabilities(table, rows)
            return np.array([row[0] for row in rows], np.int64)
        return self._probabilities(table, rows)

    def _probabilities(self, table: Table, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 [rows, labels]: 1 for the labels of a row, or the scores that it brings along."""
        targets = np.zeros((len(rows), len(self.labels)), np.float32)
        for at, numbers in enumerate(rows):
            targets[at, numbers] = 1.0
            if scores := table.rows[at].get("scores"):
                targets[at] = 0.0
                for label, score in scores.items():
                    targets[at, self.number(label, table, at)] = score
                if not self.many:
                    targets[at] /= targets[at].sum()
        return targets

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        values = np.stack(outputs)[labelled.first[:-1]] if len(outputs) else np.zeros((0, self.outputs), np.float32)
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
            truth, predicted = [float(row["score"]) for row in table.rows], [answer["score"] for answer in answers]
            metrics = {"pearson": pearson, "spearman": spearman, "mse": mean_squared_error}
            return {name: metric(truth, predicted) for name, metric in metrics.items()}
        result = self._compare(answers, table)
        scores = {"accuracy": result.accuracy, "f1": result.macro_f1}
        if isinstance(result, Several):
            return {**scores, "f1_micro": result.micro_f1}
        scores["mcc"] = result.matthews
        if len(self.labels) == 2:
            scores[f"f1_{self.labels[1]}"] = result.classes[self.labels[1]].f1
        return scores

    def _compare(self, answers: Answers, table: Table) -> Confusion | Several:
        truth, predicted = ([labels_of(each["label"]) for each in rows] for rows in (table.rows, answers))
        if self.many:
            return several(truth, predicted, self.labels)
        return confusion([row[0] for row in truth], [row[0] for row in predicted], self.labels)

    def class_report(self, answers: Answers, table: Table) -> tuple[dict[str, OfClass], Confusion | None]:
        if self.graded:
            return {}, None
        result = self._compare(answers, table)
        return result.classes, result if isinstance(result, Confusion) else None

    def single_labels(self, table: Table) -> list[str] | None:
        return [labels_of(row["label"])[0] for row in table.rows] if self.problem == "single_label" else None

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """How far off a score is; of a wrong class, how sure the answer was."""
        if self.graded:
            return abs(answer["score"] - float(row["score"]))
        right = labels_of(row["label"])
        if self.many:
            off = sum(abs(chance - (name in right)) for name, chance in answer["scores"].items())
            return off * (sorted(answer["label"]) != sorted(right))
        return 0.0 if answer["label"] == right[0] else max(answer["scores"].values())

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        if self.graded:
            return f"{answer['score']:.3g}"
        sure = max(answer["scores"].values(), default=0.0)
        return answer["label"] if self.many else f"{answer['label']} ({sure:.0%} sure)"


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


class ClassifyLayer(SummaryHeadLayer):
    """Logits of the labels, or one number, from the summary of each example."""

    weights: Tensor | None

    def __init__(self, spec: Classify, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.many, self.graded = spec.many, spec.graded
        self.out = Out(spec, spec.summary.out_width(self.width))
        self.register_buffer("weights", torch.tensor(spec.weights) if spec.weights else None, persistent=False)

    def logits(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N, outputs]."""
        return self.out(self.summed(hidden, batch))

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.compare(self.logits(hidden, batch), batch)

    def compare(self, logits: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of logits [N, outputs], whoever gives them, summed over examples, and how many are right."""
        logits, truth = logits.float(), batch.example[LABEL]
        if self.graded:
            return F.mse_loss(logits[:, 0], truth, reduction="sum"), {}
        if self.many:
            loss = F.binary_cross_entropy_with_logits(logits, truth, reduction="sum") / logits.shape[1]
            right = ((logits > 0) == truth.bool()).all(1).sum()
        else:
            loss = F.cross_entropy(logits, truth, self.weights, reduction="sum")
            right = (logits.argmax(-1) == (truth if truth.dim() == 1 else truth.argmax(-1))).sum()
        return loss, {"class_accuracy": right}

    def divergence(self, logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
        """How far logits [N, outputs] are from those of a teacher, summed over examples: see `SoftLabels`."""
        if self.graded:
            return F.mse_loss(logits, taught, reduction="sum")
        student, teacher = logits / temperature, taught / temperature
        if self.many:
            cross = F.binary_cross_entropy_with_logits(student, teacher.sigmoid(), reduction="sum")
            entropy = F.binary_cross_entropy_with_logits(teacher, teacher.sigmoid(), reduction="sum")
            return temperature**2 * (cross - entropy) / logits.shape[1]
        targets = teacher.log_softmax(-1)
        return temperature**2 * F.kl_div(student.log_softmax(-1), targets, reduction="sum", log_target=True)

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        return {"logits": self.logits(hidden, batch)}

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        return list(self.logits(hidden, batch).float().cpu().numpy())
