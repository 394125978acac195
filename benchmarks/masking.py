"""Our masks against the collator of `transformers`: the same blocks of text, one thread, in turns."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness, peer
from benchmarks.harness import benchmark, footer, format_spread
from benchmarks.maskers import MASKS, Bench, make
from benchmarks.side import answer

if TYPE_CHECKING:
    from rich.console import RenderableType

# Whole against whole is the comparison; a mask alone is a part of the peer's work, reported beside it.
PAIRS = (("batch", "batch"), ("batch", "batch, ids alone"), ("corrupt", "batch"), ("corrupt", "corrupt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The shapes of batches, and how long each side works."""

    lengths: tuple[int, ...] = (128, 512)
    sizes: tuple[int, ...] = (32, 256)
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    repetitions: int = 9
    threads: int | None = 1
    seconds: float = 0.15  # of processor time in a segment

    @classmethod
    def quick(cls) -> "Setting":
        return cls(repetitions=5, seconds=0.1)


@benchmark("masking", ("numpy", "torch", "transformers"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure both in one process, call by call."""
    peer.library()
    return {**harness.ask("masking", folder, setting.cores), "repetitions": setting.repetitions}


def serve(folder: Path, answers: IO[str]) -> None:
    answer(answers, measure(folder))


def measure(folder: Path) -> dict[str, Any]:
    """Everything, in this process."""
    setting = Setting.read(folder)
    facts = make(folder)
    cells = [
        measure_cell(Bench(folder, length, size), setting) | {"length": length, "batch": size}
        for length in setting.lengths
        for size in setting.sizes
    ]
    return {"workload": facts, "cells": cells}


def measure_cell(bench: Bench, setting: Setting) -> dict[str, Any]:
    """Every mask for one length and batch: examples a processor second of each side, and their ratios."""
    masks = {}
    for name in MASKS:
        sides = {"ours": bench.ours(name), "theirs": bench.theirs(name)}
        works = {f"{who}, {what}": work for who, some in sides.items() for what, work in some.items()}
        segments = in_turns(works, setting.repetitions, setting.seconds)
        rates = {
            side: [bench.size * each["batches"] / each["cpu_seconds"] for each in some]
            for side, some in segments.items()
        }
        masks[name] = {
            "examples_per_cpu_second": {side: round(statistics.median(values), 1) for side, values in rates.items()},
            "ratio": compare_rates(rates),
            "masked_share": bench.masked_share(name),
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
    segments: dict[str, list[Any]] = {name: [] for name in works}
    names = list(works)
    for turn in range(repetitions):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            segments[name].append(segment(works[name], counts[name]))
    return segments


def segment(work: Callable[[], object], batches: int) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        work()
    return {"batches": batches, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def compare_rates(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Ours by theirs within each repetition, for every pair that there is: `batch / batch` and so on."""
    ratios = {}
    for ours, theirs in PAIRS:
        mine, other = rates.get(f"ours, {ours}"), rates.get(f"theirs, {theirs}")
        if mine and other:
            ratios[f"{ours} / {theirs}"] = harness.ratio_of_pairs(mine, other)
    return ratios


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    table = harness.make_table("shape", "mask", "alone", "batch", "peer", "batch / peer", "alone", left=2, wrap=False)
    for cell in results["cells"]:
        for number, (mask, row) in enumerate(cell["masks"].items()):
            rates, ratio = row["examples_per_cpu_second"], row["ratio"]
            theirs = rates.get("theirs, batch")
            table.add_row(
                "" if number else f"{cell['batch']}x{cell['length']}",
                mask,
                f"{rates['ours, corrupt']:,.0f}",
                f"{rates['ours, batch']:,.0f}",
                f"{theirs:,.0f}" if theirs else "",
                format_spread(ratio["batch / batch"]) if ratio else "",
                f"{ratio['corrupt / batch']['median']:.1f}" if ratio else "",
            )
    return Group(
        f"examples a processor second, one thread; {results['repetitions']} repetitions in turns",
        "",
        table,
        "",
        "batch: from token ids to the tensors of a model, as the collator of the peer makes them;",
        "alone: only mask and label ids that are in memory, and at the right by that batch of the peer",
        footer(results),
    )
