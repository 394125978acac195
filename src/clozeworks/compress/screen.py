"""The table of a compression."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.compress.chain import Row
from clozeworks.screen.console import columns

COSTS = ("MB", "smaller", "parameters", "tokens/s", "faster", "ms", "load s", "RAM MB")


def show_rows(console: Console, rows: Sequence[Row], rivals: Sequence[Row] = ()) -> None:
    """A line a model, twice, for a terminal has 80 columns: what it weighs and how fast it is; how good it is, and what
    its step cost. Rivals follow, and what they are against the last row's model."""
    last, rows = rows[-1], [*rows, *rivals]
    quality = rows[0].measured.quality
    assert quality is not None
    metric = quality.metric.replace("_", " ")
    costs, qualities = columns("step", *COSTS, right=COSTS), ("value", "difference", "kept", "CPU s")
    cosines = ("cosine", "least") if "cosine" in quality.more else ()
    table = columns("step", *qualities[:2], "95 % paired interval", *cosines, *qualities[2:], right=qualities + cosines)
    for row in rows:
        costs.add_row(*_costs(row, rows[0].measured.bytes))
        table.add_row(*_quality(row))
    console.print(costs)
    less = " (a loss: the less, the better)" if quality.lower else ""
    console.print(f"\n{metric}{less}, against the original on the same examples")
    console.print(table)
    if rivals:
        show_rivals(console, last, rivals)
    for row in rows:
        if row.note:
            console.print(Text(f"{row.name}: {row.note}"), soft_wrap=True)


def show_rivals(console: Console, compressed: Row, rivals: Sequence[Row]) -> None:
    """What models of the same recipe are that were trained as long without the original."""
    table = columns("rival", "difference", "95 % paired interval", right=("difference",))
    for row in rivals:
        assert row.against is not None
        table.add_row(Text(row.name), f"{row.against.value:+.4f}", f"{row.against.low:+.4f} to {row.against.high:+.4f}")
    budget = ", ".join(step for step in compressed.steps if step.startswith("distil"))
    console.print(f"\nagainst the compressed model: trained as long ({budget}) without the original", soft_wrap=True)
    console.print(table)


def show_tried(console: Console, rows: Sequence[Row]) -> None:
    """A line for each chain of steps that was tried, and whether it stayed."""
    table = columns("tried", "MB", "faster", "quality", "", right=("MB", "faster", "quality"))
    for row in rows[1:]:
        name = ", ".join(row.steps)
        says = Text("kept", style="green") if row.kept else Text(row.note)
        speed = row.measured.speed.ratio if row.measured.speed else float("nan")
        quality = row.measured.quality.retained if row.measured.quality else float("nan")
        table.add_row(Text(name), f"{row.measured.bytes / 1e6:.2f}", f"{speed:.2f}x", f"{quality:.4f}", says)
    console.print(table)


def _costs(row: Row, before: int) -> list[Any]:
    measured, speed = row.measured, row.measured.speed
    assert speed is not None
    return [
        Text(row.name),
        f"{measured.bytes / 1e6:.2f}",
        f"{before / measured.bytes:.2f}x",
        f"{measured.parameters:,}",
        f"{speed.tokens_per_second:,.0f}",
        f"{speed.ratio:.2f}x",
        f"{speed.milliseconds:.1f}",
        "-" if measured.load_seconds is None else f"{measured.load_seconds:.2f}",
        "-" if measured.peak_memory_mb is None else f"{measured.peak_memory_mb:,.0f}",
    ]


def _quality(row: Row) -> list[Any]:
    quality = row.measured.quality
    assert quality is not None
    paired = quality.difference
    return [
        Text(row.name),
        f"{quality.value:.4f}",
        f"{paired.value:+.4f}" if row.steps else "",
        f"{paired.low:+.4f} to {paired.high:+.4f}" if row.steps else "",
        *(f"{quality.more[name]:.3f}" for name in ("cosine", "cosine_min") if name in quality.more),
        f"{100 * quality.retained:.1f} %",
        f"{row.seconds:.1f}" if row.steps else "",
    ]
