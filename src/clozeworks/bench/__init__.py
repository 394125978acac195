"""Benchmarks: us and the peers on this machine, in one run, in turns."""

import dataclasses
import importlib
import json as json_lines
from pathlib import Path

from clozeworks import atomic
from clozeworks.errors import InputError, suggest

NAMES = {
    "pretrain": "our training step against the Trainer of transformers",
    "quality": "our held-out loss against that of the Trainer",
    "masking": "our masks against the collator of transformers",
    "prepare": "from raw text to tokens on disk, against datasets",
    "loader": "how long training waits for its data",
}


def main(
    name: str | None, quick: bool = False, json: bool = False, out: Path | None = None, data: Path | None = None
) -> int:
    """Run a benchmark by name: a table, or with `json` one object on one line; with `out` the object as a file too.

    Without a name, say which there are. `data` is text of your own, for the benchmark that takes some.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if name is None:
        if json:
            print(json_lines.dumps(NAMES))
        else:
            console.print("\n".join(f"clozeworks bench {each:<10}{what}" for each, what in NAMES.items()))
        return 0
    if name not in NAMES:
        raise InputError("bench", name, "a benchmark of ours is needed", suggest(name, NAMES))
    if data is not None and name not in ("prepare", "quality"):
        raise InputError("--data", data, f"{name} has a text of its own", "leave it out, or choose prepare or quality")
    if data is not None and not data.exists():
        raise InputError("--data", data, "no such path", "check it")

    benchmark = importlib.import_module(f"clozeworks.bench.{name}")
    setting = benchmark.Setting.quick() if quick else benchmark.Setting()
    figures = benchmark.run(setting if data is None else dataclasses.replace(setting, data=str(data)))
    if out is not None:
        atomic.write_json(out, figures)
    if json:
        print(json_lines.dumps(figures, allow_nan=False))
    else:
        console.print(benchmark.render(figures))
    return 0
