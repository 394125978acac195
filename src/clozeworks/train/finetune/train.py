"""Fine-tuning from a model and labelled rows to a run directory, on the loop of pretraining."""

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.core.spec import to_dict
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint, tensors
from clozeworks.exchange.bundle import Bundle
from clozeworks.recipe import Recipe
from clozeworks.starts.word_vectors import describe_start
from clozeworks.train import metrics_log, run_dir
from clozeworks.train.finetune.batches import LabelledBatches, predict_words
from clozeworks.train.finetune.evaluator import TaskEvaluator
from clozeworks.train.finetune.memory import choose_micro_tokens
from clozeworks.train.finetune.recipe import require_columns
from clozeworks.train.pretrain import choose_precision, pick_device
from clozeworks.train.resources import allocator
from clozeworks.train.run import Result, train_run
from clozeworks.train.screen.view import View
from clozeworks.train.startup.setup import Start, set_up
from clozeworks.train.writers import Writer
from clozeworks.vectors.table import Vectors


def finetune_run(
    recipe: Recipe,
    tokenizer: Tokenizer,
    train: Table,
    dev: Table | None,
    out: str | os.PathLike[str],
    *,
    source: Bundle | None = None,
    examples: Labelled | None = None,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    writers: Sequence[Writer] = (),
    words: Vectors | None = None,
) -> Result:
    """Train a recipe that has a task on the rows of a table; resume by itself where `out` has a checkpoint.

    `source` is what the encoder's weights come from; without one it begins fresh, its table of words from `words`.
    `examples` are the rows of `train` as the task makes them, where they have been made already. The best model by the
    task's metric on `dev`, or without that the last one, is left in `out` as a model directory of its own.
    """
    allocator.keep_freed()
    task, tune, run = recipe.task, recipe.finetune, Path(out)
    tables = [train, *([dev] if dev else [])]
    if task is None or tune is None:
        raise InputError(recipe.name, "a recipe without a task", "it is trained on text", "use pretrain")
    for table in tables:
        require_columns(table, task)
    device = pick_device(device)
    model, recipe = None if source is None else source.model, copy.deepcopy(recipe)
    facts = {"precision": choose_precision(recipe, device), "source": describe_start(model, words), "teacher": None}
    now = {"tokenizer": tokenizer.fingerprint, "data": list(map(describe_table, tables))}
    run_dir.compare(run, recipe, now, facts)
    rows = task.examples(train, tokenizer) if examples is None else examples
    if any("labels" in loss.needs.reads for loss in recipe.objective.losses):
        rows = copy.deepcopy(rows)
        predict_words(rows)
    notes = settle_micro_tokens(run, recipe, rows, device)
    batches = LabelledBatches(rows, tune.batch_size, recipe.train, recipe.reading, tokenizer.filler)
    evaluator = TaskEvaluator(task, dev, tokenizer, recipe.reading, tune.patience) if dev else None
    start = Start(source=model, words=words)
    setup = set_up(run, recipe, tokenizer, batches, device=device, start=start)
    setup.notes += [*(evaluator.notes if evaluator else []), *batches.notes, *notes]
    view = View(progress=progress, console=console, writers=writers)
    return train_run(
        run,
        setup,
        batches,
        evaluator,
        data=now,
        facts=facts,
        view=view,
        publish=lambda result: publish(run, result, recipe),
    )


def settle_micro_tokens(run: Path, recipe: Recipe, rows: Labelled, device: str) -> list[str]:
    """How a step is worked off: as asked, as the run was begun, or as memory is free; and what to say of that."""
    if recipe.train.micro_tokens is not None or not len(rows):
        return []
    if not (run / run_dir.RECIPE).exists():
        return choose_micro_tokens(recipe, rows, device)
    recipe.train.micro_tokens = read_json(run / run_dir.RECIPE, dict)["train"]["micro_tokens"]
    return []


def publish(run: Path, result: Result, recipe: Recipe) -> None:
    """The weights of the best step as those of the directory, with what its evaluation settled."""
    step = result.step if result.best is None else result.best
    place = run / checkpoint.name_of(step)
    if not place.is_dir():
        raise InputError(place, "gone", "it is the best checkpoint of the run", "restore it from a copy")
    with atomic_io.file(run / tensors.FILE) as weights:
        tensors.write(weights, checkpoint.Checkpoint(place, step, {}).tensors(), step)
    atomic_io.write_json(run / run_dir.RECIPE, to_dict(calibrate_recipe(run, result, recipe)))


def calibrate_recipe(run: Path, result: Result, recipe: Recipe) -> Recipe:
    """The recipe with the facts of its task that the evaluation of the best step determined."""
    task, rows = recipe.task, metrics_log.read(run / run_dir.METRICS)
    measured = metrics_log.last_metrics(rows, result.best or 0)
    if task is None or measured is None:
        return recipe
    facts = {name: measured[name] for name in task.calibrated_fields() if name in measured}
    losses = tuple(dataclasses.replace(task, **facts) if loss is task else loss for loss in recipe.objective.losses)
    return dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, losses=losses))


def describe_table(table: Table) -> dict[str, Any]:
    """What is written down of a table."""
    content = json.dumps(table.rows, sort_keys=True, ensure_ascii=False, default=str).encode()
    return {
        "directory": str(Path(table.name).resolve()),
        "weight": 1.0,
        "fingerprint": hashlib.sha256(content).hexdigest(),
        "counts": {"rows": len(table)},
    }
