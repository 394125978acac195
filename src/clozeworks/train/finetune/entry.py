"""The one way in: a task, a model, labelled rows."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from clozeworks.core.errors import InputError
from clozeworks.data.tables import balance, fewer, read_table, repeats, split_table
from clozeworks.inference.predict import match_columns
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.tasks.task import find_task
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.plan import Plan, make_plan
from clozeworks.train.finetune.result import FinetuneResult
from clozeworks.train.finetune.run import run_plan

StrPath = str | os.PathLike[str]


def plan(
    task: str,
    model: TextEncoder | StrPath,
    train: Any,
    dev: Any = None,
    columns: Mapping[str, str] | None = None,
    options: FinetuneOptions | None = None,
) -> Plan:
    """What a run would do: the rows read, a share of them put aside where there are no others, the recipe made."""
    kind, options = find_task(task), options or FinetuneOptions()
    encoder = model if isinstance(model, TextEncoder) else load(model)
    truth = kind.truth_columns()
    read = read_table(train, match_columns(kind), truth, columns, maybe=kind.maybe)
    rows, held, notes = read.table, None, read.notes
    if dev is not None:
        other = read_table(dev, match_columns(kind), truth, columns, maybe=kind.maybe)
        held, notes = other.table, notes + other.notes + repeats(rows, other.table)
    elif options.dev_share:
        rows, held = split_table(rows, options.dev_share)
        notes.append(f"{len(held):,} of {len(rows) + len(held):,} rows are put aside for measuring")
    if options.limit is not None and options.limit < len(rows):
        notes.append(f"about {options.limit:,} of {len(rows):,} rows are learned from")
        rows = fewer(rows, options.limit)
    notes += balance(rows).notes
    made = make_plan(task, encoder, rows, held, options)
    made.columns, made.notes = read.columns, [*notes, *made.notes]
    return made


def finetune(
    task: str,
    model: TextEncoder | StrPath,
    train: Any,
    dev: Any = None,
    *,
    out: StrPath,
    columns: Mapping[str, str] | None = None,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    tell: Callable[[Plan], None] | None = None,
    **options: Any,
) -> FinetuneResult:
    """Train a model on labelled rows: files, `datasets` objects, frames or lists of dicts.

    `columns` says which column of yours is which of the task's ({"text": "review"}); `options` are the fields of
    `FinetuneOptions`. The same call resumes where `out` has a checkpoint. `tell` is shown the plan before anything is
    trained.
    """
    if not isinstance(out, str | os.PathLike):
        raise InputError("out", repr(out), "the directory of the run is needed", "give a path")
    made = plan(task, model, train, dev, columns, FinetuneOptions.of(options))
    if tell is not None:
        tell(made)
    return run_plan(made, out, device=device, progress=progress, console=console)
