"""Figures of a model that was trained for a task, on labelled rows."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.cli.arguments import Options
from clozeworks.cli.finetune import pairs_of
from clozeworks.cli.paths import existing
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.tables import balance, read_table
from clozeworks.evaluate.examination import Examination, examine
from clozeworks.evaluate.mistakes import Mistakes, mistakes
from clozeworks.evaluate.report import page
from clozeworks.inference.predict import get_task, match_columns
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.metrics.classes import Confusion
from clozeworks.screen.console import closing, columns, emit, facts, note
from clozeworks.train.finetune.plan import limit_length

SHOWN, CLASSES = 5, 30  # mistakes, and classes of a matrix, on a screen


def run(options: Options, encoder: TextEncoder, console: Console) -> None:
    task, tokenizer = get_task(encoder.recipe), encoder.tokenizer
    if options.test is None:
        needed = f"it was trained to {task.name}, and labelled rows tell how well"
        raise InputError("--data", options.data, needed, "give them as --test FILE")
    for name in ("window", "stride", "tokens", "memory", "rounds", "pairs"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}", getattr(options, name), "it is about text without labels", "leave it out")
    if tokenizer is None:
        raise InputError(options.model, "no tokenizer", "text needs one", "put tokenizer.json beside it")
    if options.report is not None and not options.report.endswith((".html", ".htm")):
        raise InputError("--report", options.report, "it is one HTML page", "use an ending of .html")
    if options.max_length is not None:
        task = dataclasses.replace(task, template=limit_length(task.template, encoder.recipe, options.max_length))
        task.template.check("--max-length")
    file = existing(options.test, "a labelled file")
    rows = read_table(file, match_columns(task), task.truth, pairs_of(options.columns, "--columns"), maybe=task.maybe)
    found = examine(encoder.model, task, rows.table, tokenizer, encoder.kind, options.seed)
    wrong = mistakes(task, found.answers, rows.table)
    baseline = commonest(balance(rows.table).counts) if wrong.confusion is not None else {}
    if options.report is not None:
        told = [("model", options.model), ("task", task.name), ("rows", f"{len(rows.table):,} of {options.test}")]
        told += [("always the same", f"{name}: accuracy {share:.4f}") for name, share in baseline.items()]
        title = f"{Path(options.model).name}: {task.name}"
        atomic_io.write_text(Path(options.report), page(title, told, found, wrong))
    if options.json:
        emit({"model": options.model, "test": options.test, **outcome(task.name, found, wrong, baseline, rows.notes)})
        return
    for text in rows.notes:
        note(console, text)
    console.print(f"{len(rows.table):,} rows of {options.test}\n", soft_wrap=True)
    tell(console, found, wrong, baseline)
    command = f"clozeworks predict {shlex.quote(options.model)} {shlex.quote(options.test)}"
    more = (
        "" if options.report else f"clozeworks evaluate {shlex.quote(options.model)} --test {shlex.quote(options.test)}"
    )
    closing(console, options.report, command, *([f"{more} --report report.html"] if more else []))


def commonest(counts: dict[str, int]) -> dict[str, float]:
    """The commonest class with the accuracy of always saying so."""
    name = next(iter(counts))
    return {name: counts[name] / sum(counts.values())}


def outcome(
    name: str, found: Examination, wrong: Mistakes, baseline: dict[str, float], notes: list[str]
) -> dict[str, Any]:
    matrix = wrong.confusion
    return {
        "task": name,
        "rows": len(found.answers),
        **found.figures,
        "loss": found.loss,
        "intervals": found.intervals,
        "commonest": baseline,
        "classes": {label: each._asdict() for label, each in wrong.classes.items()},
        "confusion": None if matrix is None else {"labels": matrix.labels, "counts": matrix.counts.tolist()},
        "worst": [dataclasses.asdict(each) for each in wrong.worst],
        "notes": notes,
    }


def tell(console: Console, found: Examination, wrong: Mistakes, baseline: dict[str, float]) -> None:
    table = columns("figure", "value", "95 % of resampled rows", right=("value",))
    for name, value in found.figures.items():
        low, high = found.intervals[name]
        table.add_row(name.replace("_", " "), f"{value:.4f}", f"{low:.4f} to {high:.4f}")
    for name, share in baseline.items():
        table.add_row(Text(f"accuracy of always saying {name}"), f"{share:.4f}", "")
    console.print(table)
    if wrong.classes:
        console.print()
        console.print(_classes(wrong))
    if wrong.confusion is not None and 1 < len(wrong.confusion.labels) <= CLASSES:
        console.print()
        console.print(_matrix(wrong.confusion))
    for each in wrong.worst[:SHOWN]:
        console.print()
        rows = [("row", each.where), *each.row.items(), ("right", each.right), ("told", each.told)]
        console.print(facts([(name, Text(value)) for name, value in rows]))


def _classes(wrong: Mistakes) -> Any:
    names = ("precision", "recall", "F1", "rows")
    table = columns("class", *names, right=names)
    for name, each in wrong.classes.items():
        table.add_row(Text(name), f"{each.precision:.3f}", f"{each.recall:.3f}", f"{each.f1:.3f}", f"{each.support:,}")
    return table


def _matrix(found: Confusion) -> Any:
    """A row for each class that is right, a column for each that was told."""
    table = columns("right \\ told", *found.labels, right=found.labels)
    for name, row in zip(found.labels, found.counts.tolist(), strict=True):
        table.add_row(Text(name), *(f"{count:,}" for count in row))
    return table
