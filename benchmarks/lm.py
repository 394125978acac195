"""Our training step against classes of `transformers` in a plain loop, for models that say what comes next.

Same weights, same full rows, same real tokens a step, same threads, in turns.
"""

import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.child import Contestant, ask, turns
from benchmarks.figures import setting_of
from benchmarks.lm_figures import render, summary
from benchmarks.workload import DATA, SETTING
from clozeworks.core.errors import InputError, suggest
from clozeworks.machine import doctor

__all__ = ["CELLS", "Cell", "Setting", "render", "run"]

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
NEAR = 1e-3  # how far the losses of the two may lie apart on the same weights and examples


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a recipe, the class that is the same model, the rows that both read."""

    recipe: str
    peer: str  # its inputs: plain_loop.INPUTS
    full: int = 128  # tokens of an example, a row each
    tokens: int = 4096  # a step
    rows: int | None = None  # of the vocabulary; None: the tokenizer's
    repetitions: int = 5
    steps: int = 8  # in a segment
    warmup: int = 2  # steps


CELLS = {
    "gpt": Cell("gpt_mini", "OpenAIGPTLMHeadModel"),
    "xlnet": Cell("xlnet_mini", "XLNetLMHeadModel"),
    "gpt-base": Cell("gpt", "OpenAIGPTLMHeadModel", 512, 2048, 40_478, repetitions=2, steps=2, warmup=1),
}


@dataclass(frozen=True, slots=True)
class Setting:
    cells: tuple[str, ...] = tuple(CELLS)
    repetitions: int = 5  # at most; a cell may have fewer
    steps: int = 8  # in a segment, at most
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        """The small models; under five minutes."""
        return Setting(tuple(name for name, cell in CELLS.items() if cell.rows is None), repetitions=3, steps=4)

    def cell(self, name: str) -> Cell:
        cell = CELLS[name]
        return replace(cell, repetitions=min(cell.repetitions, self.repetitions), steps=min(cell.steps, self.steps))


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from benchmarks import peer

    for name in setting.cells:
        if name not in CELLS:
            raise InputError("--only", name, "a cell of this benchmark is needed", suggest(name, CELLS))
    peer.library()
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    cells = {}
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        text = Path(name) / DATA
        for each in setting.cells:
            place = Path(name) / each
            place.mkdir()
            if text.exists():
                (place / DATA).symlink_to(text, target_is_directory=True)
            cells[each] = one(setting, setting.cell(each), place, threads)
            if not text.exists():
                (place / DATA).rename(text)
    return {"benchmark": "lm", "dtype": "fp32", "cells": cells, **setting_of(threads, PACKAGES, begin)}


def one(setting: Setting, cell: Cell, folder: Path, threads: int) -> dict[str, Any]:
    """One cell: both compute the same loss, then train in turns."""
    given = {**asdict(cell), "vocab": setting.vocab, "documents": setting.documents}
    (folder / SETTING).write_text(json.dumps(given))
    work = ask("lm", folder, threads, "make")
    losses = ask("lm", folder, threads, "same")
    if abs(losses["ours"] - losses["theirs"]) > NEAR:
        raise RuntimeError(f"the two models are not the same: step 0 gives {losses}")
    sides = {"ours": Contestant("ours", folder, threads), "theirs": Contestant("lm", folder, threads, "theirs")}
    segments = turns(sides, cell.warmup, cell.repetitions, cell.steps)
    return {
        "workload": work,
        "peer": cell.peer,
        "loss_at_step_0": losses,
        **summary(segments),
        "segments": segments,
    }
