"""Our pretraining step against the Trainer of `transformers`: same weights, same text, same threads, in turns."""

import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.child import Contestant, ask
from benchmarks.figures import setting_of
from benchmarks.pretrain_figures import render, summary
from benchmarks.workload import DATA, SETTING
from clozeworks.core.errors import InputError, suggest
from clozeworks.machine import doctor

__all__ = ["CELLS", "Cell", "Setting", "render", "run"]

SIDES = ("ours", "trainer")
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "numpy")
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


@dataclass(frozen=True, slots=True)
class Setting:
    cells: tuple[str, ...] = tuple(CELLS)
    repetitions: int = 3  # at most; a cell may have fewer
    shrink: bool = False  # fewer steps of full rows, and fewer tokens a step for the largest model
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    threads: int | None = None  # None: every core this process may use
    profile: bool = False  # our side alone: where its time goes

    @staticmethod
    def quick() -> "Setting":
        """Each model once, on the text that takes least time; under five minutes."""
        return Setting(("mini-8k", "mini-30k-128", "base-128"), repetitions=2, shrink=True)

    def cell(self, name: str) -> Cell:
        cell = CELLS[name]
        cell = replace(cell, repetitions=min(cell.repetitions, self.repetitions))
        if not self.shrink:
            return cell
        tokens = min(cell.tokens, 1024) if cell.recipe == _BASE.recipe else cell.tokens
        return replace(cell, tokens=tokens, steps=cell.steps and max(1, cell.steps // 2))


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from benchmarks import peer

    for name in setting.cells:
        if name not in CELLS:
            raise InputError("--only", name, "a cell of this benchmark is needed", suggest(name, CELLS))
    if not setting.profile:
        peer.library()
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    cells = {}
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        for each in setting.cells:
            place = folder / each
            place.mkdir()
            text = folder / DATA
            if text.exists():
                (place / DATA).symlink_to(text, target_is_directory=True)
            cells[each] = one(setting, setting.cell(each), place, threads)
            if not text.exists():
                (place / DATA).rename(text)
    return {
        "benchmark": "pretrain",
        "dtype": "fp32",
        "cells": cells,
        "peer": {"settings": peer.SETTINGS, "collator": "DataCollatorForLanguageModeling(mlm_probability=0.15)"},
        **setting_of(threads, PACKAGES, begin),
    }


def one(setting: Setting, cell: Cell, folder: Path, threads: int) -> dict[str, Any]:
    """One cell: with `profile` our own time by part, else both sides in turns."""
    given = {**asdict(cell), "vocab": setting.vocab, "documents": setting.documents}
    (folder / SETTING).write_text(json.dumps(given))
    work = ask("make", folder, threads)
    if setting.profile:
        return {"workload": work, "profile": ask("breakdown", folder, threads)}
    losses = ask("same", folder, threads)
    if abs(losses["ours"] - losses["theirs"]) > NEAR:
        raise RuntimeError(f"the two models are not the same: step 0 gives {losses}")
    sides = {side: Contestant(side, folder, threads) for side in (*SIDES, "rates")}
    try:
        segments, rates = measure(cell, sides, cell.steps or work["steps_a_segment"])
    finally:
        for side in sides.values():
            side.close()
    return {"workload": work, "loss_at_step_0": losses, **summary(segments, rates, work), "segments": segments}


def measure(cell: Cell, sides: dict[str, Contestant], steps: int) -> tuple[dict[str, list[Any]], list[Any]]:
    """Segments in turns, one side resting while the other works; who goes first changes each time."""
    for side in SIDES:
        sides[side].go(cell.warmup)
    segments: dict[str, list[Any]] = {name: [] for name in SIDES}
    rates = []
    for turn in range(cell.repetitions):
        for name in (SIDES, SIDES[::-1])[turn % 2]:
            segments[name].append(sides[name].go(steps))
        rates.append(sides["rates"].go(TIMES))
    return segments, rates
