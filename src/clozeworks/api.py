"""The public functions, as `import clozeworks as cw` shows them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from clozeworks.compress.run import compress
from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tables import read_table
from clozeworks.evaluate.examination import examine
from clozeworks.evaluate.text import evaluate_text
from clozeworks.exchange.lengthen import LENGTH, WINDOW, lengthen, refresh
from clozeworks.inference.predict import get_task, match_columns
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.model import Model
from clozeworks.recipe import Recipe
from clozeworks.recipe import build as _build
from clozeworks.recipe import count_parameters as _count
from clozeworks.recipes import named, recipe
from clozeworks.train.finetune.entry import finetune
from clozeworks.train.pretrain import pretrain as _pretrain
from clozeworks.train.resources.cost import multiply_adds as _multiply_adds
from clozeworks.train.run import Result

StrPath = str | os.PathLike[str]

__all__ = [
    "build",
    "compress",
    "convert",
    "count_parameters",
    "diff",
    "evaluate",
    "finetune",
    "load",
    "multiply_adds",
    "prepare",
    "pretrain",
    "recipe",
    "recipes",
    "save",
]


def recipes() -> list[str]:
    """The names of all recipes, in family order."""
    return list(named())


def count_parameters(recipe: Recipe | str, heads: bool = True) -> int:
    """Parameters as pretrained, each shared tensor once, nothing allocated; without heads, the published encoder."""
    return _count(_recipe(recipe), heads)


def multiply_adds(recipe: Recipe | str, length: int) -> int:
    """Of the blocks for one row of so many tokens, and for a target as long as it where there is a decoder."""
    return _multiply_adds(_recipe(recipe), length)


def diff(before: Recipe | str, after: Recipe | str) -> dict[str, tuple[Any, Any]]:
    """What changes from one recipe to another, as {path: (before, after)}."""
    return spec.diff(_recipe(before), _recipe(after))


def build(recipe: Recipe | str) -> Model:
    """A model with fresh weights."""
    return _build(_recipe(recipe))


def pretrain(
    recipe: Recipe | str,
    data: StrPath | Sequence[StrPath | tuple[StrPath, float]],
    out: StrPath,
    teacher: TextEncoder | StrPath | None = None,
    **more: Any,
) -> Result:
    """Train a recipe on prepared directories, several of them with weights; resumes where `out` has a checkpoint.

    `teacher`, for recipes that distil, is what `load` gives, or a path for it. `more` goes to
    `clozeworks.train.pretrain.pretrain`: source, device, progress, console, writers.
    """
    if isinstance(teacher, str | os.PathLike):
        teacher = load(teacher)
    several = [data] if isinstance(data, str | os.PathLike) else data
    weighed = [each if isinstance(each, tuple) else (each, 1.0) for each in several]
    return _pretrain(_recipe(recipe), weighed, out, teacher=teacher, **more)


def evaluate(
    model: TextEncoder | StrPath,
    data: StrPath | None = None,
    *,
    test: Any = None,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of a model by their usual names: on the held-out text of a prepared directory (`data`), with those of
    word frequencies alone; or of a fine-tuned model on labelled records (`test`: a file, dicts, a data frame, a data
    set), with 95 % bootstrap intervals as `intervals`. `columns` says what the file calls the columns of the task."""
    encoder = model if isinstance(model, TextEncoder) else load(model)
    if (data is None) == (test is None):
        given = "neither data nor test" if data is None else "both data and test"
        needed = "one of them is needed"
        raise InputError("evaluate", given, needed, "data for held-out text, test for labelled records")
    if data is not None:
        return evaluate_text(encoder, Path(data), seed)
    task = get_task(encoder.recipe)
    if encoder.tokenizer is None:
        raise InputError(encoder.recipe.name, "no tokenizer", "text needs one", "put tokenizer.json beside it")
    table = read_table(test, match_columns(task), task.truth, dict(columns or {}), maybe=task.maybe).table
    scored = examine(encoder.model, task, table, encoder.tokenizer, encoder.kind, seed)
    return {**scored.metrics, "loss": scored.loss, "records": len(table), "intervals": scored.intervals}


def convert(
    model: TextEncoder | StrPath,
    to: Literal["longformer"] = "longformer",
    length: int = LENGTH,
    window: int = WINDOW,
    refresh_global: bool = False,
) -> TextEncoder:
    """A model for texts of `length` tokens, with a window of so many around each, made of one for shorter texts.

    `refresh_global` is for afterwards: of a converted model, the projections of global tokens are copied again.
    """
    if to != "longformer":
        raise InputError("to", to, "longformer is needed", "leave it out")
    encoder = model if isinstance(model, TextEncoder) else load(model)
    return refresh(encoder) if refresh_global else lengthen(encoder, length, window)


def _recipe(given: Recipe | str) -> Recipe:
    return given if isinstance(given, Recipe) else recipe(given)
