"""Our pretraining step against the Trainer of `transformers`: same weights, same text, same threads, in turns."""

import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.cells import check_cells, check_losses, share_text, write_cell
from benchmarks.harness import Segments, Side, ask, benchmark, closing, format_known, format_spread
from benchmarks.side import Meter, answer

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "trainer")
NEAR = 1e-3  # how far the losses of the two may lie apart on the same weights and examples
TIMES = 7  # of each product, each time the rate of products is taken


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a model, a text, a number of tokens a step."""

    recipe: str = "bert_mini"
    rows: int | None = None  # of the vocabulary; None: the tokenizer's
    full: int | None = None  # rows of so many tokens; None: ragged sentences
    tokens: int = 4096  # a step
    repetitions: int = 3
    steps: int | None = None  # in a segment; None: one sweep of the peer's sampler, or 16 of full rows
    warmup: int = 3  # steps


_BASE = Cell("bert_base", 30_522, tokens=2048, repetitions=2, warmup=1)
CELLS = {
    "mini-8k": Cell(),
    "mini-8k-128": Cell(full=128),
    "mini-8k-512": Cell(full=512),
    "mini-30k": Cell(rows=30_000),
    "mini-30k-128": Cell(rows=30_000, full=128, steps=8),
    "mini-30k-512": Cell(rows=30_000, full=512, steps=8),
    "base": replace(_BASE, tokens=1024),
    "base-128": replace(_BASE, full=128, steps=2),
    "base-512": replace(_BASE, full=512, steps=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The cells, and the text that they train on."""

    cells: tuple[str, ...] = tuple(CELLS)
    repetitions: int = 3  # at most; a cell may have fewer
    shrink: bool = False  # fewer steps of full rows, and fewer tokens a step for the largest model
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    profile: bool = False  # our side alone: where its time goes

    @classmethod
    def quick(cls) -> "Setting":
        """Each model once, on the text that takes least time; under five minutes."""
        return cls(cells=("mini-8k", "mini-30k-128", "base-128"), repetitions=2, shrink=True)

    def cell(self, name: str) -> Cell:
        cell = CELLS[name]
        cell = replace(cell, repetitions=min(cell.repetitions, self.repetitions))
        if not self.shrink:
            return cell
        tokens = min(cell.tokens, 1024) if cell.recipe == _BASE.recipe else cell.tokens
        return replace(cell, tokens=tokens, steps=cell.steps and max(1, cell.steps // 2))


@benchmark("pretrain", ("torch", "transformers", "accelerate", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every cell, all on one prepared text."""
    from benchmarks import peer

    check_cells(setting.cells, CELLS)
    if not setting.profile:
        peer.library()
    return {
        "dtype": "fp32",
        "cells": {name: measure_cell(setting, name, share_text(folder, name)) for name in setting.cells},
        "peer": {"settings": peer.SETTINGS, "collator": "DataCollatorForLanguageModeling(mlm_probability=0.15)"},
    }


def measure_cell(setting: Setting, name: str, folder: Path) -> dict[str, Any]:
    """One cell: with `profile` our own time by part, else both sides in turns."""
    cell, threads = setting.cell(name), setting.cores
    write_cell(cell, folder, vocab=setting.vocab, documents=setting.documents)
    work = ask("pretrain", folder, threads, "make")
    if setting.profile:
        return {"workload": work, "profile": ask("pretrain", folder, threads, "breakdown")}
    losses = ask("pretrain", folder, threads, "same")
    check_losses(losses, NEAR)
    with closing({side: Side("pretrain", folder, threads, side) for side in (*SIDES, "rates")}) as sides:
        segments, rates = measure(cell, sides, cell.steps or work["steps_a_segment"])
    return {"workload": work, "loss_at_step_0": losses, **summary(segments, rates, work), "segments": segments}


def measure(cell: Cell, sides: dict[str, Side], steps: int) -> tuple[Segments, list[Any]]:
    """Segments in turns, and after each round the rate of products."""
    for side in SIDES:
        sides[side].go(cell.warmup)
    segments: Segments = {name: [] for name in SIDES}
    rates = []
    for turn, name in enumerate(harness.alternate(SIDES, cell.repetitions), 1):
        segments[name].append(sides[name].go(steps))
        if turn % len(SIDES) == 0:
            rates.append(sides["rates"].go(TIMES))
    return segments, rates


def summary(segments: Segments, rates: list[dict[str, float]], work: dict[str, Any]) -> dict[str, Any]:
    """Medians of each side, ratios of pairs, and how near a step comes to the rate of its products."""
    linear, flops = statistics.median(rate["flops_per_second"] for rate in rates), work["flops_a_token"]
    results = harness.summarize(segments, *SIDES)
    for name, some in segments.items():
        tokens, speed = sum(each["tokens"] for each in some), statistics.median(harness.per(some, "tokens", "seconds"))
        results["sides"][name] |= {
            "share_of_padding": round(1 - tokens / sum(each["computed"] for each in some), 4),
            "useful_share_of_linear": round(speed * flops["useful"] / linear, 3),
            "before_training_mb": some[-1]["base_mb"],
        }
    ours = results["sides"]["ours"]
    ours["computed_share_of_linear"] = round(ours["tokens_per_second"] * flops["computed"] / linear, 3)
    return results | {"linear_gflops_per_second": round(linear / 1e9, 1)}


# ---- in a process of its own


def serve(folder: Path, answers: IO[str], act: str) -> None:
    """What a side does: make the workload, compare losses, train, or measure products or parts."""
    from benchmarks import arithmetic, breakdown, peer, workload

    if act == "make":
        work = workload.make(folder)
        answer(answers, {**work.facts(), "flops_a_token": arithmetic.flops_a_token(work)})
    elif act == "same":
        answer(answers, dict(zip(("ours", "theirs"), peer.losses(folder), strict=True)))
    elif act == "breakdown":
        answer(answers, breakdown.measure(folder))
    elif act == "rates":
        workload.keep_freed()
        rates = arithmetic.Rates(workload.Workload.open(folder))
        while times := int(sys.stdin.readline().strip() or 0):
            answer(answers, rates.measure(times))
    elif act == "trainer":
        peer.train(folder, Meter(answers))
    else:
        workload.train(folder, Meter(answers))


# ---- the table


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    profiled = any("profile" in cell for cell in results["cells"].values())
    table = parts(results["cells"]) if profiled else comparison(results["cells"])
    lines = [about(name, cell) for name, cell in results["cells"].items()]
    return Group(*lines, "", table, "", harness.long_footer(results))


def about(name: str, cell: dict[str, Any]) -> str:
    work = cell["workload"]
    length = work["tokens_an_example"]
    text = f"rows of {length['50%']}" if length["5%"] == length["95%"] else f"sentences of {length['50%']} tokens"
    line = f"{name}: {work['parameters']:,} parameters, vocabulary {work['vocabulary']:,}; {text}"
    if "segments" in cell:
        line += f"; {cell['repetitions']} x {cell['segments']['ours'][0]['steps']} steps of {work['tokens_a_step']:,}"
        line += f" tokens; loss at step 0 {cell['loss_at_step_0']['ours']:.4f}, {cell['loss_at_step_0']['theirs']:.4f}"
    return line


def comparison(cells: dict[str, Any]) -> "RenderableType":
    table = harness.make_table(
        "", "tokens/s", "Trainer's", "ratio", "ratio, processor time", "memory", "of linear", "Trainer's"
    )
    for name, cell in cells.items():
        ours, theirs = (cell["sides"][side] for side in SIDES)
        table.add_row(
            name,
            *(f"{side['tokens_per_second']:,.0f}" for side in (ours, theirs)),
            *(format_spread(cell["ratio"][clock]) for clock in harness.CLOCKS),
            format_known(cell["peak_memory_ratio"], ".2f"),
            *(f"{side['useful_share_of_linear']:.0%}" for side in (ours, theirs)),
        )
    return table


def parts(cells: dict[str, Any]) -> "RenderableType":
    """Where our time goes, in per cent of a step."""
    table = harness.make_table("our step, % of its time", *cells)
    profiles = [cell["profile"] for cell in cells.values()]
    for kind in ("parts", "kinds"):
        for part in profiles[0][kind]:
            shares = (profile[kind][part] / max(sum(profile[kind].values()), 1e-9) for profile in profiles)
            table.add_row(part, *(f"{100 * share:.1f}" for share in shares))
        table.add_section()
    table.add_row("milliseconds", *(f"{sum(profile['parts'].values()):,.0f}" for profile in profiles))
    return table
