"""clozeworks runs"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import JsonOptions, argument
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from clozeworks.train.listing import Run

STYLES = {"running": "green", "finished": "bold", "diverged": "red", "damaged": "red"}
NAMES = ("run", "recipe", "state", "step", "loss", "held-out", "tokens", "tokens/s", "last row", "disk")
NUMBERS = NAMES[4:]


@dataclass(kw_only=True)
class Options(JsonOptions):
    """List runs: running, finished, stopped, diverged, damaged

    A run that has diverged skipped too many steps in a row; one that is damaged has files that cannot be read, and
    says which.

    clozeworks runs
    clozeworks runs experiments --json
    """

    directories: list[str] = argument("DIR", "where to look, with all below it (default: here)", nargs="*")


def run(options: Options) -> int:
    """Find the runs, and list them with what is wrong with any."""
    from clozeworks.screen.console import columns, emit, note, screen
    from clozeworks.train.listing import find

    directories = [existing(directory, "a directory") for directory in options.directories or ["."]]
    for directory in directories:
        if not directory.is_dir():
            raise InputError(directory, "a file", "a directory is needed", "give the one that it is in")
    runs = find(directories)
    if options.json:
        emit({"runs": [asdict(one) for one in runs]})
        return 0
    console = screen()
    if not runs:
        where = ", ".join(options.directories or ["this directory"])
        console.print(f"no runs in or below {where}; clozeworks pretrain begins one", markup=False, soft_wrap=True)
        return 0
    table = columns(*NAMES, right=NUMBERS)
    for one in runs:
        table.add_row(*cells(one))
    show(console, table, runs)
    for one in runs:
        for damage in one.damage:
            note(console, f"{one.path}: {damage}")
    return 0


def show(console: Console, table: Table, runs: list[Run]) -> None:
    """A table where it fits, or goes to a file; else one run below the other."""
    from rich.measure import Measurement

    from clozeworks.screen.console import facts

    wide = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if not console.is_terminal:
        console.width = max(wide, console.width)  # lines of a file may be long
    if wide <= console.width:
        console.print(table)
        return
    for number, one in enumerate(runs):
        if number:
            console.print()
        console.print(facts([(name, cell) for name, cell in zip(NAMES, cells(one), strict=True) if cell.plain]))


def cells(run: Run) -> list[Text]:
    """What the table says of a run, by NAMES."""
    from rich.text import Text

    from clozeworks.screen.console import short, size, span

    state = run.state + (f", process {run.process.removesuffix(f' on {platform.node()}')}" if run.process else "")
    heldout = run.heldout or {}
    texts = [
        Path(run.path).resolve().name if run.path == "." else run.path,
        run.recipe or "",
        state,
        f"{run.step:,}" + ("" if run.steps is None else f" of {run.steps:,}"),
        "" if run.loss is None else f"{run.loss:.3f}",
        f"{heldout['loss']:.3f}" if "loss" in heldout else "",
        "" if run.tokens is None else short(run.tokens),
        "" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}",
        f"{span(run.age)} ago",
        size(run.bytes),
    ]
    return [Text(text, STYLES.get(run.state, "") if text is state else "", overflow="fold") for text in texts]
