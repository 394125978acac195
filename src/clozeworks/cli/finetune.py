"""clozeworks finetune"""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.cli.pretrain import device
from clozeworks.core.errors import InputError
from clozeworks.data.tables import balance
from clozeworks.screen.console import closing, emit, facts, note, screen
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.task import Task
from clozeworks.train.finetune.entry import plan
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.plan import Plan
from clozeworks.train.finetune.result import FinetuneResult
from clozeworks.train.finetune.run import run_plan

READ = {
    "SumLayers": "the last layers summed",
    "JoinLayers": "the last layers joined",
    "ScalarMix": "a mix of all layers",
}
PLACES = {"mean": "the mean of all tokens", "concat": "the last token, the largest units and the mean"}
SHOWN = 12  # labels that are told with their counts


def run(options: Options) -> int:
    device(options.device)
    if options.out is None and not options.dry_run:
        raise InputError("clozeworks finetune", "no --out", "a run needs a directory", "add --out run, or --dry-run")
    wishes = wishes_of(options)
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    train, dev = (None if file is None else existing(file, "a labelled file") for file in (options.train, options.dev))
    found = plan(options.task, encoder, train, dev, pairs_of(options.columns, "--columns"), wishes)
    console = screen()
    if not options.json:
        tell(console, found)
    if options.out is None or options.dry_run:
        if options.json:
            emit({**told(found), "notes": found.notes})
        else:
            closing(console, None, "the same command without --dry-run, with --out RUN")
        return 0
    done = run_plan(found, options.out, device=options.device, progress=not options.json, console=console)
    if options.json:
        emit(outcome(options, found, done))
    else:
        report(console, options, found, done)
    return 128 + done.signal if done.signal else 0


def wishes_of(options: Options) -> FinetuneOptions:
    names = ("epochs", "batch_size", "max_length", "freeze", "features", "from_scratch", "gradual_unfreezing", "layer_decay",
             "continue_pretraining", "lm_weight", "patience", "seeds", "limit", "architecture", "decoder",
             "word_vectors", "freeze_word_vectors")  # fmt: skip
    given = {name: getattr(options, name) for name in names}
    return FinetuneOptions(**given, changes=pairs_of(options.set, "--set"))


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE, several of them."""
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            example = "text=review" if option == "--columns" else "train.learning_rate=1e-4"
            raise InputError(option, text or "nothing", "NAME=VALUE is needed", f"for example: {option} {example}")
        found[name] = value
    return found


def tell(console: Console, found: Plan) -> None:
    """What was read, and what will be done."""
    for text in found.notes:
        note(console, text)
    train, tune = found.recipe.train, found.recipe.finetune
    assert tune is not None
    epochs = "1 epoch" if tune.epochs == 1 else f"{tune.epochs} epochs"
    begin = "fresh weights" if found.options.from_scratch else found.encoder.recipe.name
    held = f", {len(found.dev):,} to measure on" if found.dev else ""
    rows = [("rows", f"{len(found.train):,} to learn from{held}")]
    rows.append(("columns", ", ".join(f"{name} = {column}" for name, column in found.columns.items())))
    if counts := balance(found.train).counts:
        rows.append(("labels", labels_of(counts)))
    learns = "all but its words learns" if found.recipe.encoder.embed.frozen else "all of it learns"
    rows += [
        ("encoder", f"{begin}, {'frozen' if tune.freeze else learns}, texts of {found.task.template.length}"),
        ("head", head_of(found.task)),
        ("training", f"{epochs}, {train.steps:,} steps of {tune.batch_size}, rate {train.learning_rate:.1e}"),
    ]
    if found.options.continue_pretraining:
        rows.insert(-1, ("before", f"{found.options.continue_pretraining:,} steps of pretraining on these texts"))
    console.print(facts(rows))
    console.print()


def labels_of(counts: dict[str, int]) -> str:
    """Labels with the number of rows that have them, the commonest first."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:SHOWN])
    return f"{shown} and {len(counts) - SHOWN} more" if len(counts) > SHOWN else shown


def head_of(task: Task) -> str:
    """What the head reads, and how many labels it tells apart."""
    summary = getattr(task, "summary", None)
    reading = type(task.reading).__name__
    parts = [] if reading == "Reading" else [READ[reading]]
    parts += [] if task.task_encoder is None else [f"readers of {task.task_encoder.cells} cells"]
    if isinstance(summary, Summary):
        parts.append(PLACES.get(summary.place, f"the {summary.place} token"))
        parts += (
            [{"pooler": "the encoder's pooler", "own": "a layer of its own"}[summary.dense]] if summary.dense else []
        )
    parts += task.describe()
    parts += [f"{len(task.labels)} labels"] if task.labels else []
    return f"{task.name}: {', '.join(parts)}" if parts else task.name


def told(found: Plan) -> dict[str, Any]:
    train, tune = found.recipe.train, found.recipe.finetune
    rows = {"train": len(found.train), **({"dev": len(found.dev)} if found.dev else {})}
    how = {"epochs": tune and tune.epochs, "steps": train.steps, "learning_rate": train.learning_rate}
    return {
        "task": found.task.name,
        "rows": rows,
        "columns": found.columns,
        "labels": balance(found.train).counts,
        **how,
    }


def outcome(options: Options, found: Plan, done: FinetuneResult) -> dict[str, Any]:
    """The one object of --json."""
    seeds = [{"seed": seed, **figures} for seed, figures in done.seeds.items()]
    more = {"seeds": seeds, "mean": done.mean, "spread": done.spread}
    place = {"model": options.model, "run": str(done.out), "finished": done.finished}
    figures = {**done.metrics, "intervals": done.intervals}
    return {**told(found), **place, **figures, **more, "notes": done.notes}


def report(console: Console, options: Options, found: Plan, done: FinetuneResult) -> None:
    console.print()
    if not done.finished:
        console.print("stopped; run the same command again to go on")
        return
    rows = []
    for name, value in done.metrics.items():
        low, high = done.intervals[name]
        rows.append((name.replace("_", " "), f"{value:.4f}   95 % of resampled rows: {low:.4f} to {high:.4f}"))
        if name in done.spread:
            rows.append(("", f"{done.mean[name]:.4f} +- {done.spread[name]:.4f} over {len(done.seeds)} seeds"))
    console.print(facts(rows))
    run = shlex.quote(str(done.out))
    closing(
        console,
        f"{done.out}: recipe.json, model.safetensors, tokenizer.json",
        f"clozeworks predict {run} {shlex.quote(str(options.dev or options.train))}",
        f"clozeworks evaluate {run} --test FILE",
    )
