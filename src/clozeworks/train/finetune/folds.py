"""Cross-validation: every row is answered by a model that learned from the other folds alone (Stone 1974)."""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from clozeworks.data.tables.table import Table
from clozeworks.evaluate.examination import Examination, score_answers
from clozeworks.inference.answers import predict_records
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.train.finetune.plan import Plan, make_plan

FOLDS = "folds.json"  # the metrics, in the run directory


def divide_fold(plan: Plan, fold: int) -> tuple[Table, Table]:
    """The rows that the model of a fold learns from, and those that it is measured on."""
    held = set(plan.folds[fold])
    return plan.train.some([at for at in range(len(plan.train)) if at not in held]), plan.train.some(plan.folds[fold])


def divide_folds(plan: Plan) -> Iterator[tuple[Table, Table]]:
    return (divide_fold(plan, fold) for fold in range(len(plan.folds)))


def plan_fold(plan: Plan, train: Table) -> Plan:
    """What is planned for all rows, for these alone: labels, epochs and steps are theirs."""
    made = make_plan(plan.task.name, plan.encoder, train, None, dataclasses.replace(plan.options, folds=None))
    return dataclasses.replace(made, unlabelled=plan.unlabelled)


def answer_fold(tuned: TextEncoder, table: Table) -> list[dict[str, Any]]:
    """The answers to rows that a model did not learn from; they may have labels that it has never seen."""
    task = tuned.recipe.task
    assert task is not None
    assert tuned.tokenizer is not None
    return predict_records(tuned.model, task, table, tuned.tokenizer, tuned.kind, truth=not task.labels)[0]


def score_folds(plan: Plan, answers: Sequence[list[dict[str, Any]]]) -> Examination:
    """The task's metrics over the answers of all folds together."""
    of_row = dict(zip(chain.from_iterable(plan.folds), chain.from_iterable(answers), strict=True))
    return score_answers(plan.task, [of_row[at] for at in range(len(plan.train))], plan.train)
