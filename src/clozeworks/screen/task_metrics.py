"""Metrics of a task on labelled rows: a table, classes, the confusion matrix, the worst mistakes."""

from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.evaluate.examination import Examination
from clozeworks.evaluate.mistakes import Mistakes
from clozeworks.metrics.classes import Confusion
from clozeworks.screen.console import columns, facts

SHOWN, CLASSES = 5, 30  # mistakes, and classes of a matrix, on a screen


def show_task_metrics(console: Console, result: Examination, wrong: Mistakes, baseline: dict[str, float]) -> None:
    """Metrics with their intervals, then classes, the confusion matrix and the worst mistakes."""
    table = columns("metric", "value", "95 % of resampled rows", right=("value",))
    for name, value in result.metrics.items():
        low, high = result.intervals[name]
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
        rows = [("row", each.where), *each.row.items(), ("right", each.right), ("predicted", each.predicted)]
        console.print(facts([(name, Text(value)) for name, value in rows]))


def _classes(wrong: Mistakes) -> Any:
    names = ("precision", "recall", "F1", "rows")
    table = columns("class", *names, right=names)
    for name, each in wrong.classes.items():
        table.add_row(Text(name), f"{each.precision:.3f}", f"{each.recall:.3f}", f"{each.f1:.3f}", f"{each.support:,}")
    return table


def _matrix(confusion: Confusion) -> Any:
    """A row for each class that is right, a column for each that was predicted."""
    table = columns("right \\ predicted", *confusion.labels, right=confusion.labels)
    for name, row in zip(confusion.labels, confusion.counts.tolist(), strict=True):
        table.add_row(Text(name), *(f"{count:,}" for count in row))
    return table
