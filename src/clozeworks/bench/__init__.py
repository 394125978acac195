"""Benchmarks: us and the peers on this machine, in one run, in turns."""

import json as json_lines
from pathlib import Path

from clozeworks import atomic
from clozeworks.errors import InputError, suggest

NAMES = ("pretrain",)


def main(name: str, quick: bool = False, json: bool = False, out: Path | None = None) -> int:
    """Run a benchmark by name: a table, or with `json` one object on one line; with `out` the object as a file too."""
    from rich.console import Console

    from clozeworks.bench import pretrain

    if name not in NAMES:
        raise InputError("bench", name, "a benchmark of ours is needed", suggest(name, NAMES))
    console = Console(highlight=False)
    figures = pretrain.run(pretrain.Setting(repetitions=3, limit=150.0) if quick else pretrain.Setting())
    if out is not None:
        atomic.write_json(out, figures)
    if json:
        print(json_lines.dumps(figures, allow_nan=False))
    else:
        console.print(pretrain.render(figures))
    return 0
