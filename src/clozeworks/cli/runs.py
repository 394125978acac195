"""clozeworks runs"""

import platform
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.screen.console import columns, emit, facts, note, screen, short, size, span
from clozeworks.train.listing import Run, find

STYLES = {"running": "green", "finished": "bold", "diverged": "red", "damaged": "red"}
NAMES = ("run", "recipe", "state", "step", "loss", "held-out", "tokens", "tokens/s", "last row", "disk")
NUMBERS = NAMES[4:]


def run(options: Options) -> int:
    directories = [existing(directory, "a directory") for directory in options.directories or ["."]]
    for directory in directories:
        if not directory.is_dir():
            raise InputError(directory, "a file", "a directory is needed", "give the one that it is in")
    found = find(directories)
    if options.json:
        emit({"runs": [asdict(one) for one in found]})
        return 0
    console = screen()
    if not found:
        where = ", ".join(options.directories or ["this directory"])
        console.print(f"no runs in or below {where}; clozeworks pretrain begins one", markup=False, soft_wrap=True)
        return 0
    table = columns(*NAMES, right=NUMBERS)
    for one in found:
        table.add_row(*cells(one))
    show(console, table, found)
    for one in found:
        for damage in one.damage:
            note(console, f"{one.path}: {damage}")
    return 0


def show(console: Console, table: Table, found: list[Run]) -> None:
    """A table where it fits, or goes to a file; else one run below the other."""
    wide = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if not console.is_terminal:
        console.width = max(wide, console.width)  # lines of a file may be long
    if wide <= console.width:
        console.print(table)
        return
    for number, one in enumerate(found):
        if number:
            console.print()
        console.print(facts([(name, cell) for name, cell in zip(NAMES, cells(one), strict=True) if cell.plain]))


def cells(run: Run) -> list[Text]:
    state = run.state + (f", process {run.process.removesuffix(f' on {platform.node()}')}" if run.process else "")
    heldout = run.heldout or {}
    told = [
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
    return [Text(text, STYLES.get(run.state, "") if text is state else "", overflow="fold") for text in told]
