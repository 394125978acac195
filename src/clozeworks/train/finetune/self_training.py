"""Rows without labels, learned as a teacher answers them (self-training: Scudder 1965; Xie et al. 2020)."""

import dataclasses
import json
from pathlib import Path

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.tables.table import Row, Table
from clozeworks.evaluate.baselines import Scores, likeliest, score_counting
from clozeworks.inference.answers import predict_records
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.tasks.task import Task
from clozeworks.train.finetune.plan import Plan, make_plan

ANSWERS = "answers.jsonl"  # of the teacher, in the directory of its run


def require_scores(task: Task) -> None:
    """Refuse rows without labels where the task cannot learn from probabilities."""
    if "scores" not in task.maybe or not task.labels:
        given = f"with {task.name}" + (" of numbers" if "scores" in task.maybe else "")
        needed = "only classify, with labels, learns from the probabilities that a teacher gives"
        raise InputError("--unlabelled", given, needed, "leave it out")


def choose_unlabelled(task: Task, unlabelled: Table, known: list[Table]) -> tuple[Table, list[str]]:
    """Each row once, none that is among those with labels; and what to say of that."""
    seen = {_texts(task, row) for table in known for row in table.rows}
    kept = list[int]()
    for at, row in enumerate(unlabelled.rows):
        if (texts := _texts(task, row)) not in seen:
            seen.add(texts)
            kept.append(at)
    if not kept:
        needed = "rows that are not among those with labels are needed"
        raise InputError(unlabelled.name, f"{len(unlabelled):,} rows, all known", needed, "leave --unlabelled out")
    left = len(unlabelled) - len(kept)
    notes = [f"{left:,} of {len(unlabelled):,} rows of {unlabelled.name} are known already and left out"]
    return unlabelled.some(kept), notes * bool(left)


def plan_teacher(plan: Plan, encoder: TextEncoder) -> Plan:
    """Of the labelled rows alone, from the same encoder."""
    options = dataclasses.replace(plan.options, unlabelled=None, continue_pretraining=None, text=())
    return dataclasses.replace(plan, encoder=encoder, unlabelled=None, options=options)


def plan_student(plan: Plan, encoder: TextEncoder, teacher: TextEncoder, run: Path) -> Plan:
    """From the same encoder again: all rows, those without labels as sure as the teacher is of them.

    The teacher is the mean of the fine-tuned model's probabilities and those of logistic regression on n-grams of words
    and of characters, where scikit-learn is installed: they err differently. Its answers are kept in `run`.
    """
    assert plan.unlabelled is not None
    answered = Table(plan.train.name, [*plan.train.rows, *_answers(plan, teacher, run / ANSWERS)])
    made = make_plan(plan.task.name, encoder, answered, plan.dev, plan_teacher(plan, encoder).options)
    return dataclasses.replace(made, columns=plan.columns, notes=plan.notes)


def _answers(plan: Plan, teacher: TextEncoder, file: Path) -> list[Row]:
    task, rows = plan.task, plan.unlabelled.rows if plan.unlabelled else []
    if file.is_file():
        kept = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        if [_texts(task, row) for row in kept] != [_texts(task, row) for row in rows]:
            raise InputError(file, "answers to other rows", "a run resumes with its own", "choose another --out")
        return kept
    answers = [
        {**{name: row[name] for name in task.columns}, "label": _label(task, scores), "scores": scores}
        for row, scores in zip(rows, _scores(plan, teacher), strict=True)
    ]
    lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in answers)
    atomic_io.write_bytes(file, "".join(lines).encode("utf-8", "surrogatepass"))
    return answers


def _scores(plan: Plan, teacher: TextEncoder) -> list[Scores]:
    """The mean over the model and what counts words."""
    task, table = teacher.recipe.task, plan.unlabelled
    assert task is not None
    assert table is not None
    assert teacher.tokenizer is not None
    model = predict_records(teacher.model, task, table, teacher.tokenizer, teacher.kind)[0]
    views = [[answer["scores"] for answer in model]]
    if task.single_labels(plan.train) is not None:
        views += score_counting(task, plan.train, table)[0].values()
    return [
        {label: sum(view.get(label, 0.0) for view in row) / len(views) for label in task.labels}
        for row in zip(*views, strict=True)
    ]


def _label(task: Task, scores: Scores) -> str | list[str]:
    """What a report counts; the scores are what is learned."""
    if getattr(task, "many", False):
        return [label for label, score in scores.items() if score > 0.5]
    return likeliest(scores)


def _texts(task: Task, row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in task.columns)
