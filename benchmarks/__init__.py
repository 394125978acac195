"""Benchmarks: us and the peers on this machine, in one run, in turns."""

import dataclasses
import importlib
import json as json_lines
from pathlib import Path

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError, suggest

NAMES = {
    "pretrain": "our training step against the Trainer of transformers",
    "lm": "our steps of GPT and XLNet against transformers",
    "quality": "our held-out loss against that of the Trainer",
    "learning": "what the same CPU seconds teach a small model, against the Trainer",
    "masking": "our masks against the collator of transformers",
    "prepare": "from raw text to tokens on disk, against datasets",
    "loader": "how long training waits for its data",
    "xl": "a sliding window against a memory, by the token",
    "long": "windows, hashing and full attention over long sequences",
    "tune": "our fine-tuning and prediction against transformers",
    "family": "what shared layers and a teacher cost a step",
    "vectors": "our word vectors against gensim",
    "int8": "our sentence vectors, fp32 and int8, against transformers and onnxruntime",
}


# What some benchmarks take besides: the field of their setting, and what the others have instead.
OWN = {
    "data": ("a text of its own", "prepare, quality, learning, vectors or int8"),
    "cells": ("no cells", "pretrain, lm, tune, learning, vectors or int8"),
    "keep": ("no runs to keep", "learning"),
    "judge": ("no scored words", "vectors"),
    "profile": ("no profile", "pretrain"),
    "plot": ("no plot", "xl or long"),
    "dropout": ("a rate of its own", "long"),
    "model": ("models of its own", "int8"),
}


def main(name: str | None, quick: bool = False, json: bool = False, out: Path | None = None, **more: object) -> int:
    """Run a benchmark by name: a table, or with `json` one object on one line; with `out` the object as a file too.

    Without a name, say which there are. `more` are fields of its setting: `data` (your own text), `cells`, `profile`,
    `plot` (a file to draw it to), `dropout` (a rate), `judge` (files of scored words), `keep` (a file of
    finished runs), `model` (a directory).
    """
    from rich.console import Console

    console = Console(highlight=False)
    if name is None:
        if json:
            print(json_lines.dumps(NAMES))
        else:
            console.print(
                "\n".join(f"python -m benchmarks {each:<10}{what}" for each, what in NAMES.items()), soft_wrap=True
            )
        return 0
    if name not in NAMES:
        raise InputError("bench", name, "a benchmark of ours is needed", suggest(name, NAMES))
    benchmark = importlib.import_module(f"benchmarks.{name}")
    setting = benchmark.Setting.quick() if quick else benchmark.Setting()
    given = {field: value for field, value in more.items() if value}
    for field, value in given.items():
        if field not in {each.name for each in dataclasses.fields(setting)}:
            has, other = OWN[field]
            option = "--only" if field == "cells" else f"--{field}"
            raise InputError(option, value, f"{name} has {has}", f"leave it out, or choose {other}")
    if "data" in given and not Path(str(given["data"])).exists():
        raise InputError("--data", given["data"], "no such path", "check it")
    results = benchmark.run(dataclasses.replace(setting, **given))
    if out is not None:
        atomic_io.write_json(out, results)
    if json:
        print(json_lines.dumps(results, allow_nan=False))
    else:
        console.print(benchmark.render(results))
    return 0
