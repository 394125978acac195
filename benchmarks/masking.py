"""Our masks against the collator of `transformers`: the same blocks of text, one thread, in turns."""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import peer
from benchmarks.child import ask
from benchmarks.figures import footer, setting_of, spread, told
from benchmarks.maskers import MASKS, SETTING, Bench, make

if TYPE_CHECKING:
    from rich.console import RenderableType

PACKAGES = ("numpy", "torch", "transformers")
# Whole against whole is the comparison; a mask alone is a part of the peer's work, told beside it.
PAIRS = (("batch", "batch"), ("batch", "batch, ids alone"), ("corrupt", "batch"), ("corrupt", "corrupt"))


@dataclass(frozen=True, slots=True)
class Setting:
    lengths: tuple[int, ...] = (128, 512)
    sizes: tuple[int, ...] = (32, 256)
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    repetitions: int = 9
    seconds: float = 0.15  # of processor time in a segment

    @staticmethod
    def quick() -> "Setting":
        return Setting(repetitions=5, seconds=0.1)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    peer.library()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        measured = ask("masking", folder, threads=1)
    return {"benchmark": "masking", **measured, "repetitions": setting.repetitions, **setting_of(1, PACKAGES, begin)}


def measure(folder: Path) -> dict[str, Any]:
    """Everything, in this process."""
    setting = json.loads((folder / SETTING).read_text())
    facts = make(folder)
    cells = [
        measure_cell(Bench(folder, length, size), setting) | {"length": length, "batch": size}
        for length in setting["lengths"]
        for size in setting["sizes"]
    ]
    return {"workload": facts, "cells": cells}


def measure_cell(bench: Bench, setting: dict[str, Any]) -> dict[str, Any]:
    """Every mask for one length and batch: examples a processor second of each side, and their ratios."""
    masks = {}
    for name in MASKS:
        sides = {"ours": bench.ours(name), "theirs": bench.theirs(name)}
        works = {f"{who}, {what}": work for who, some in sides.items() for what, work in some.items()}
        segments = in_turns(works, setting["repetitions"], setting["seconds"])
        rates = {
            side: [bench.size * row["batches"] / row["cpu_seconds"] for row in rows] for side, rows in segments.items()
        }
        masks[name] = {
            "examples_per_cpu_second": {side: round(statistics.median(values), 1) for side, values in rates.items()},
            "ratio": ratios(rates),
            "hidden_share": bench.hidden(name),
            "segments": segments,
        }
    return {"masks": masks}


def in_turns(works: dict[str, Callable[[], object]], repetitions: int, seconds: float) -> dict[str, list[Any]]:
    """Segments of about equal processor time, one side after another; who goes first changes each time."""
    counts = {}
    for name, work in works.items():
        work()
        counts[name] = 1
        while (took := segment(work, counts[name])["cpu_seconds"]) < seconds / 4:
            counts[name] *= 2
        counts[name] = max(1, round(counts[name] * seconds / took))
    rows: dict[str, list[Any]] = {name: [] for name in works}
    names = list(works)
    for turn in range(repetitions):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rows[name].append(segment(works[name], counts[name]))
    return rows


def segment(work: Callable[[], object], batches: int) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        work()
    return {"batches": batches, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def ratios(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Ours by theirs within each repetition, for every pair that there is: `batch / batch` and so on."""
    found = {}
    for ours, theirs in PAIRS:
        mine, other = rates.get(f"ours, {ours}"), rates.get(f"theirs, {theirs}")
        if mine and other:
            found[f"{ours} / {theirs}"] = spread([a / b for a, b in zip(mine, other, strict=True)])
    return found


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("shape", no_wrap=True)
    table.add_column("mask", no_wrap=True)
    for name in ("alone", "batch", "peer", "batch / peer", "alone"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in figures["cells"]:
        for number, (mask, row) in enumerate(cell["masks"].items()):
            rates, ratio = row["examples_per_cpu_second"], row["ratio"]
            theirs = rates.get("theirs, batch")
            table.add_row(
                "" if number else f"{cell['batch']}x{cell['length']}",
                mask,
                f"{rates['ours, corrupt']:,.0f}",
                f"{rates['ours, batch']:,.0f}",
                f"{theirs:,.0f}" if theirs else "",
                told(ratio["batch / batch"]) if ratio else "",
                f"{ratio['corrupt / batch']['median']:.1f}" if ratio else "",
            )
    return Group(
        f"examples a processor second, one thread; {figures['repetitions']} repetitions in turns",
        "",
        table,
        "",
        "batch: from token ids to the tensors of a model, as the collator of the peer makes them;",
        "alone: only hide and label ids that are in memory, and at the right by that batch of the peer",
        footer(figures),
    )
