"""What a model gets wrong: class by class, one class for another, and row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from clozeworks.data.tables.table import Row, Table
from clozeworks.metrics.answers import f1, language_of
from clozeworks.metrics.classes import Confusion, OfClass, confusion, several
from clozeworks.metrics.entities import by_type
from clozeworks.metrics.rouge import rouge
from clozeworks.metrics.scores import ranks
from clozeworks.tasks.classify import Classify, labels_of
from clozeworks.tasks.embed import SentenceEmbedding
from clozeworks.tasks.qa import QuestionAnswering
from clozeworks.tasks.seq2seq import Seq2Seq
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.task import Task

Answers = Sequence[dict[str, Any]]
WORST = 10
LONGEST = 300  # characters that are shown of a text


@dataclass(frozen=True, slots=True)
class Mistake:
    where: str  # the row, as messages name it
    row: dict[str, str]  # what the model was shown
    right: str
    told: str
    badness: float


@dataclass(frozen=True, slots=True)
class Mistakes:
    classes: dict[str, OfClass] = field(default_factory=dict)  # or types of entities
    confusion: Confusion | None = None
    worst: list[Mistake] = field(default_factory=list)


def mistakes(task: Task, answers: Answers, table: Table, worst: int = WORST) -> Mistakes:
    """`worst` so many of the wrong answers, the surest or furthest off first, in the order of the rows where alike."""
    classes, matrix = _classes(task, answers, table)
    if isinstance(task, SentenceEmbedding) and answers and "rank" not in answers[0]:
        bad = _displaced(answers, table)
    else:
        bad = np.array([_badness(task, answer, row) for answer, row in zip(answers, table.rows, strict=True)])
    order = [at for at in np.argsort(-bad, kind="stable").tolist() if bad[at] > 0][:worst]
    return Mistakes(classes, matrix, [_mistake(task, answers, table, at, float(bad[at])) for at in order])


def _classes(task: Task, answers: Answers, table: Table) -> tuple[dict[str, OfClass], Confusion | None]:
    if isinstance(task, Classify) and task.graded:
        return {}, None
    if isinstance(task, Classify) and task.many:
        right, told = ([labels_of(each["label"]) for each in rows] for rows in (table.rows, answers))
        found = several(right, told, task.labels)
        return found.classes, None
    if isinstance(task, Classify):
        right, told = ([labels_of(each["label"])[0] for each in rows] for rows in (table.rows, answers))
        matrix = confusion(right, told, task.labels)
        return matrix.classes, matrix
    if isinstance(task, Tag):
        tags, said = [row["tags"] for row in table.rows], [each["tags"] for each in answers]
        if task.spells:
            types = by_type(tags, said, task.scheme or "plain")
            return {
                name: OfClass(each.precision, each.recall, each.f1, each.there) for name, each in types.items()
            }, None
        matrix = confusion([*chain(*tags)], [*chain(*said)], task.labels)
        return matrix.classes, matrix
    return {}, None


def _badness(task: Task, answer: Mapping[str, Any], row: Row) -> float:
    """0 for a right answer."""
    if isinstance(task, Classify) and task.graded:
        return abs(answer["score"] - float(row["score"]))
    if isinstance(task, Classify) and task.many:
        right = labels_of(row["label"])
        return sum(abs(chance - (name in right)) for name, chance in answer["scores"].items()) * (
            sorted(answer["label"]) != sorted(right)
        )
    if isinstance(task, Classify):
        return 0.0 if answer["label"] == labels_of(row["label"])[0] else max(answer["scores"].values())
    if isinstance(task, Tag):
        return sum(one != other for one, other in zip(answer["tags"], row["tags"], strict=True))
    if isinstance(task, QuestionAnswering):
        right = [each["text"] for each in row["answers"]]
        return 1 - f1(answer["answer"], right, task.language or language_of(right or [row["context"]]))
    if isinstance(task, Seq2Seq):
        return 1 - rouge([answer["text"]], [row["target"]])["rougeL"]
    if isinstance(task, SentenceEmbedding):
        return 1 - 1 / answer["rank"]
    return 0.0 if answer["answer"] == row["answer"] else max(answer["scores"])


def _displaced(answers: Answers, table: Table) -> np.ndarray:
    """How far each pair is from its place in the order of the scores, as a part of all rows."""
    told = ranks(np.array([answer["cosine"] for answer in answers]))
    return np.abs(told - ranks(np.array([float(row["score"]) for row in table.rows]))) / len(table)


def _mistake(task: Task, answers: Answers, table: Table, at: int, badness: float) -> Mistake:
    row, answer = table.rows[at], answers[at]
    shown = {name: _short(row[name]) for name in task.columns if row.get(name)}
    return Mistake(table.where(at), shown, _short(_right(task, row)), _short(_told(task, answer, row)), badness)


def _right(task: Task, row: Row) -> Any:
    if isinstance(task, QuestionAnswering):
        return [each["text"] for each in row["answers"]] or "no answer"
    if task.name == "choice":
        return row["choices"][row["answer"]]
    if isinstance(task, SentenceEmbedding):
        return row.get("score", "rank 1")
    return row[task.truth[0]]


def _told(task: Task, answer: Mapping[str, Any], row: Row) -> Any:
    if isinstance(task, Classify) and task.graded:
        return f"{answer['score']:.3g}"
    if isinstance(task, Classify):
        sure = max(answer["scores"].values(), default=0.0)
        return answer["label"] if task.many else f"{answer['label']} ({sure:.0%} sure)"
    if isinstance(task, Tag):
        return answer["tags"]
    if isinstance(task, Seq2Seq):
        return answer["text"]
    if isinstance(task, SentenceEmbedding):
        return f"cosine {answer['cosine']:.3g}" + (f", rank {answer['rank']}" if "rank" in answer else "")
    return (answer["answer"] or "no answer") if isinstance(task, QuestionAnswering) else answer["choice"]


def _short(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
