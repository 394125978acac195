"""What `bench lm` tells: medians of both sides and ratios of pairs, as a table that a page can hold."""

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.figures import footer, spread, told

if TYPE_CHECKING:
    from rich.console import RenderableType


def summary(segments: dict[str, list[Any]]) -> dict[str, Any]:
    """Medians of each side, and the ratio of each repetition's pair with its spread."""
    sides = {}
    for name, rows in segments.items():
        sides[name] = {
            "tokens_per_second": round(statistics.median(row["tokens"] / row["seconds"] for row in rows), 1),
            "tokens_per_cpu_second": round(statistics.median(row["tokens"] / row["cpu_seconds"] for row in rows), 1),
            "real_tokens_a_step": round(sum(row["tokens"] for row in rows) / sum(row["steps"] for row in rows), 1),
            "peak_mb": rows[-1]["peak_mb"],
        }
    pairs = list(zip(segments["ours"], segments["theirs"], strict=True))
    ours, theirs = sides["ours"]["peak_mb"], sides["theirs"]["peak_mb"]
    return {
        "sides": sides,
        "repetitions": len(pairs),
        "ratio": {
            clock: spread([a["tokens"] / a[clock] / (b["tokens"] / b[clock]) for a, b in pairs])
            for clock in ("seconds", "cpu_seconds")
        },
        "peak_memory_ratio": round(ours / theirs, 3) if ours and theirs else None,
    }


COLUMNS = ("", "tokens/s", "peer's", "ratio", "by processor time", "memory")


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    lines = [about(name, cell) for name, cell in figures["cells"].items()]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in rows_of(figures["cells"]):
        table.add_row(*row)
    threads = figures["machine"]["threads"]
    return Group(*lines, "", table, "", f"fp32, {threads} threads; {footer(figures)}; {figures['seconds']:,.0f} s")


def rows_of(cells: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each comparison; the losses at step 0, which must agree, are in the JSON."""
    rows = []
    for name, cell in cells.items():
        speeds = (f"{cell['sides'][side]['tokens_per_second']:,.0f}" for side in ("ours", "theirs"))
        ratios = (told(cell["ratio"][clock]) for clock in ("seconds", "cpu_seconds"))
        memory = cell["peak_memory_ratio"]
        rows.append((name, *speeds, *ratios, "?" if memory is None else f"{memory:.2f}"))
    return rows


def about(name: str, cell: dict[str, Any]) -> str:
    work = cell["workload"]
    return (
        f"{name}: {work['recipe']} against {cell['peer']}, {work['parameters']:,} parameters, vocabulary "
        f"{work['vocabulary']:,}; rows of {work['longest_example']}; {cell['repetitions']} x "
        f"{cell['segments']['ours'][0]['steps']} steps of {work['tokens_a_step']:,} tokens"
    )
