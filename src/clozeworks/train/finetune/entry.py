"""The one way in: a task, a model, labelled rows."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from clozeworks.core.errors import InputError
from clozeworks.data.tables import balance, fewer, fold_table, read_table, repeats, split_table
from clozeworks.inference.predict import match_columns
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.tasks.task import find_task
from clozeworks.train.finetune.folds import divide_fold
from clozeworks.train.finetune.options import FEW, FinetuneOptions
from clozeworks.train.finetune.plan import Plan, make_plan
from clozeworks.train.finetune.result import FinetuneResult
from clozeworks.train.finetune.run import run_plan
from clozeworks.train.finetune.self_training import choose_unlabelled, require_scores

MEASURE = "--folds 5 estimates, --dev FILE measures"
StrPath = str | os.PathLike[str]


def plan(
    task: str,
    model: TextEncoder | StrPath,
    train: Any,
    dev: Any = None,
    columns: Mapping[str, str] | None = None,
    options: FinetuneOptions | None = None,
) -> Plan:
    """What a run would do: the rows read, a share of them put aside where there are no others and enough of these, or
    divided into folds, the recipe made."""
    kind, options = find_task(task), options or FinetuneOptions()
    encoder = model if isinstance(model, TextEncoder) else load(model)
    truth = kind.truth_columns()
    read = read_table(train, match_columns(kind), truth, columns, maybe=kind.maybe)
    rows, held, notes = read.table, None, read.notes
    if dev is not None:
        if options.folds:
            needed = "folds measure on the rows that are learned from, in turn"
            raise InputError("--folds", "together with --dev", needed, "leave one of them out")
        if options.dev_share is not None:
            needed = "with --dev no row of --train is put aside"
            raise InputError("--dev-share", "together with --dev", needed, "leave one of them out")
        other = read_table(dev, match_columns(kind), truth, columns, maybe=kind.maybe)
        held, notes = other.table, notes + other.notes + repeats(rows, other.table)
    elif not options.folds and (share := options.choose_share(len(rows))):
        rows, held = split_table(rows, share)
        notes.append(f"{len(held):,} of {len(rows) + len(held):,} rows are put aside for measuring")
    elif not options.folds and options.dev_share is None:
        notes.append(f"fewer than {FEW:,} rows: all are learned from, nothing measures; {MEASURE}")
    if options.limit is not None and options.limit < len(rows):
        notes.append(f"about {options.limit:,} of {len(rows):,} rows are learned from")
        rows = fewer(rows, options.limit)
    notes += balance(rows).notes
    made = make_plan(task, encoder, rows, held, options)
    made.columns, made.notes = read.columns, [*notes, *made.notes]
    if options.unlabelled is not None:
        require_scores(made.task)
        mine = {name: column for name, column in (columns or {}).items() if name in kind.columns}
        others = read_table(options.unlabelled, match_columns(kind), (), mine)
        made.unlabelled, more = choose_unlabelled(made.task, others.table, [rows, *([held] if held else [])])
        made.notes += others.notes + more
    if options.folds:
        made.folds = fold_table(rows, options.folds)
        for fold in range(options.folds):
            made.task.with_labels(divide_fold(made, fold)[0])  # too few of them are refused now, and not after hours
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
