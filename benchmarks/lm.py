"""Our training step against classes of `transformers` in a plain loop, for models that say what comes next.

Same weights, same full rows, same real tokens a step, same threads, in turns.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.cells import check_cells, check_losses, share_text, write_cell
from benchmarks.harness import Side, ask, benchmark
from benchmarks.side import Meter, answer

if TYPE_CHECKING:
    from rich.console import RenderableType

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The cells, and the text that they train on."""

    cells: tuple[str, ...] = tuple(CELLS)
    repetitions: int = 5  # at most; a cell may have fewer
    steps: int = 8  # in a segment, at most
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all

    @classmethod
    def quick(cls) -> "Setting":
        """The small models; under five minutes."""
        return cls(cells=tuple(name for name, cell in CELLS.items() if cell.rows is None), repetitions=3, steps=4)

    def cell(self, name: str) -> Cell:
        cell = CELLS[name]
        return replace(cell, repetitions=min(cell.repetitions, self.repetitions), steps=min(cell.steps, self.steps))


@benchmark("lm", ("torch", "transformers", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every cell, all on one prepared text."""
    from benchmarks import peer

    check_cells(setting.cells, CELLS)
    peer.library()
    cells = {name: measure_cell(setting, name, share_text(folder, name)) for name in setting.cells}
    return {"dtype": "fp32", "cells": cells}


def measure_cell(setting: Setting, name: str, folder: Path) -> dict[str, Any]:
    """One cell: both compute the same loss, then train in turns."""
    cell, threads = setting.cell(name), setting.cores
    write_cell(cell, folder, vocab=setting.vocab, documents=setting.documents)
    work = ask("lm", folder, threads, "make")
    losses = ask("lm", folder, threads, "same")
    check_losses(losses, NEAR)
    sides = {name: Side("lm", folder, threads, name) for name in ("ours", "theirs")}
    segments = harness.compare(sides, warmup=cell.warmup, rounds=cell.repetitions, steps=cell.steps)
    results = {"workload": work, "peer": cell.peer, "loss_at_step_0": losses, **harness.summarize(segments)}
    return {**results, "segments": segments}


def serve(folder: Path, answers: IO[str], act: str) -> None:
    """What a side does: make the workload, compare losses, or train."""
    from benchmarks import plain_loop, workload

    if act == "make":
        answer(answers, workload.make(folder).facts())
    elif act == "same":
        answer(answers, plain_loop.losses(folder))
    else:
        {"ours": workload.train, "theirs": plain_loop.train}[act](folder, Meter(answers))


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal; the losses at step 0, which must agree, are in the JSON."""
    from rich.console import Group

    lines = [about(name, cell) for name, cell in results["cells"].items()]
    table = harness.make_table("", "tokens/s", "peer's", "ratio", "by processor time", "memory")
    for row in harness.compare_speeds(results["cells"]):
        table.add_row(*row)
    return Group(*lines, "", table, "", harness.long_footer(results))


def about(name: str, cell: dict[str, Any]) -> str:
    work = cell["workload"]
    return (
        f"{name}: {work['recipe']} against {cell['peer']}, {work['parameters']:,} parameters, vocabulary "
        f"{work['vocabulary']:,}; rows of {work['longest_example']}; {cell['repetitions']} x "
        f"{cell['segments']['ours'][0]['steps']} steps of {work['tokens_a_step']:,} tokens"
    )
