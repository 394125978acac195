"""Answers of a fine-tuned model to texts or rows, in their order and in bounded memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.core.token_info import Kind
from clozeworks.data.tables import stream
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_records
from clozeworks.model import Model
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import Task

ROWS = 512  # answered together: enough for batches of like lengths


def get_task(recipe: Recipe) -> Task:
    if recipe.task is None:
        needed, todo = "answers need a task that it was trained for", "see clozeworks finetune"
        raise InputError(recipe.name, "a model without a task", needed, todo)
    return recipe.task


def match_columns(task: type[Task] | Task) -> tuple[str, ...]:
    """What a row is asked for: the task's own columns, and the id of a question where there is one."""
    return (*task.columns, *task.identifier)


def predict(
    model: Model,
    recipe: Recipe,
    tokenizer: Tokenizer,
    given: Any,
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    rows: int = ROWS,
) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    """Some rows at a time with an answer for each; `given` is what `data.tables.read` takes."""
    task = get_task(recipe)
    reading: Kind = recipe.reading
    for table in stream(given, match_columns(task), columns, kind, rows, task.word_cut):
        yield table, predict_records(model, task, table, tokenizer, reading)[0]


def join_windows(row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it was given with its answer; what both have a name for, but an id, is kept of the row as given_NAME."""
    twice = answer.keys() - {"id"}
    kept = {name: value for name, value in row.items() if name not in twice}
    return {f"given_{name}": row[name] for name in row if name in twice} | kept | dict(answer)
