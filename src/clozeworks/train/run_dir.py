"""The directory of a run: one process at a time, and the same recipe, text and tokenizer from beginning to end."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clozeworks.core import atomic_io, checksummed_json
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.core.spec import to_dict
from clozeworks.data.shards.corpus import Corpus
from clozeworks.machine import doctor
from clozeworks.recipe import Recipe
from clozeworks.train.listing import METRICS as METRICS
from clozeworks.train.listing import RECIPE, RUN

# These fields, and what is below them, change what is kept of a run or how a step is worked off, not what it computes;
# the last one is set at the end.
# `steps` is not among them: the rate of every step depends on it, so a longer run would not be the one that was begun.
FREE = (
    "train.log_every",
    "train.save_every",
    "train.evaluate_every",
    "train.keep",
    "train.micro_tokens",
    "train.processes",
    "train.parallel",
    "train.recompute",
    "train.compile",
    "objective.losses.0.threshold",
)
STAGES = ("text", "continued")  # what a fine-tuning run keeps of the pretraining that went before it
TEACHER = "teacher"  # the run, in that of its student, that learned from labelled rows alone
FOLD = "fold-"  # begins the name of a run of cross-validation, in the directory of the run of all rows


def expect(run: Path) -> None:
    """Refuse a directory of something else."""
    if (run / RUN).exists() or not run.is_dir():
        return
    names = [path.name for path in run.iterdir() if path.name not in (atomic_io.LOCK, TEACHER, *STAGES)]
    strange = [name for name in names if not name.startswith((".", FOLD))]
    if strange:
        given = f"a directory that holds {strange[0]} but is no run"
        raise InputError(run, given, "a new or empty directory is needed", "choose another --out")


def enter(run: Path, recipe: Recipe, record: dict[str, Any]) -> None:
    """Begin a run or resume it: write down this session beside what `compare` gave."""
    record["sessions"].append(_session())
    atomic_io.write_json(run / RUN, checksummed_json.add_checksum(record))
    atomic_io.write_json(run / RECIPE, to_dict(recipe))


def describe_corpora(corpora: list[tuple[Corpus, float]]) -> dict[str, Any]:
    """What is written down of the text of a run."""
    return {
        "tokenizer": corpora[0][0].tokenizer_fingerprint,
        "data": [
            {
                "directory": str(corpus.directory.resolve()),
                "weight": weight,
                "fingerprint": corpus.fingerprint,
                "counts": asdict(corpus.counts),
            }
            for corpus, weight in corpora
        ],
    }


def compare(run: Path, recipe: Recipe, now: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The content of run.json, new or as it was; a recipe or data other than it was begun with are refused.

    `now` is the tokenizer and the data as they are. `facts` are written down at the beginning and hold for the whole
    run; of them, `source` and `teacher` are compared if given.
    """
    if (run / RUN).exists():
        record = read(run)
        _same_data(run, record, now)  # first: another tokenizer changes the recipe's vocabulary too
        if (run / RECIPE).exists():
            _same_recipe(run, _json(run / RECIPE, "it says what is trained"), to_dict(recipe))
        if facts.get("source") and facts["source"] != record["source"]:
            raise InputError(run, "it was begun from other weights", "a run keeps its source", "choose another --out")
        _same_teacher(run, record.get("teacher"), facts.get("teacher"))
        record["data"] = now["data"]  # a directory may have moved
    else:
        expect(run)
        record = {**now, **facts, "sessions": []}
    return record


def model_files(run: Path) -> dict[str, bytes]:
    """What beside its weights makes a checkpoint a model of its own."""
    names = (RECIPE, "tokenizer.json", "tokenizer_config.json")
    return {name: (run / name).read_bytes() for name in names if (run / name).is_file()}


def read(run: Path) -> dict[str, Any]:
    """The content of run.json."""
    why = "it says what this run is"
    record = _json(run / RUN, why)
    if checksummed_json.broken(record):
        raise InputError(run / RUN, "other content than when it was written", why, "restore it from a copy")
    return record


def _json(file: Path, why: str) -> dict[str, Any]:
    try:
        return read_json(file, dict)
    except (OSError, ValueError) as error:
        raise InputError(file, f"unreadable ({error})", why, "restore it from a copy") from None


def fingerprint(recipe: Recipe) -> str:
    """SHA-256 of all that decides the weights."""
    content = {path: value for path, value in flat(to_dict(recipe)) if not is_free(path)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_free(path: str) -> bool:
    """Whether a field may change between two sessions of a run."""
    return any(path == free or path.startswith(free + ".") for free in FREE)


def flat(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of JSON data by path."""
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(item, f"{where}.{name}" if where else str(name))
    else:
        yield where, value


def _same_recipe(run: Path, before: Any, after: Any) -> None:
    old, new = dict(flat(before)), dict(flat(after))
    changed = [path for path in old | new if old.get(path) != new.get(path) and not is_free(path)]
    if changed:
        shown = ", ".join(f"{path} {old.get(path)!r} -> {new.get(path)!r}" for path in changed[:5])
        shown += f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        needed = "a run keeps its recipe, and the rate of every step depends on train.steps"
        todo = "give the same one, or another --out; to train a finished model further, use --from"
        raise InputError(run, f"another recipe than it was begun with ({shown})", needed, todo)


def _same_data(run: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    names = ", ".join(dict.fromkeys(entry["directory"] for entry in now["data"]))
    if before["tokenizer"] != now["tokenizer"]:
        given = f"{names} has another tokenizer than this run was begun with"
        raise InputError(run, given, "token ids must keep their meaning", "give the same data, or another --out")
    marks = [[(entry["fingerprint"], entry["weight"]) for entry in record["data"]] for record in (before, now)]
    if marks[0] != marks[1]:
        given = f"{names} is other data, or has other weights, than this run was begun with"
        raise InputError(run, given, "a run keeps its data", "give the same data, or another --out")


def _same_teacher(run: Path, before: dict[str, Any] | None, now: dict[str, Any] | None) -> None:
    if now is not None and now != before:
        change = " -> ".join(f"{each['name']} {each['digest'][:12]}" if each else "none" for each in (before, now))
        given = f"another teacher than it was begun with ({change})"
        raise InputError(run, given, "a run keeps its teacher", "give the same --teacher, or another --out")


def versions() -> dict[str, str]:
    numbers = {"python": platform.python_version()}
    for package in ("clozeworks", "torch", "numpy", "safetensors", "tokenizers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from its source
            numbers[package] = importlib.metadata.version(package)
    return numbers


def _session() -> dict[str, Any]:
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": shlex.join(sys.argv),
        "directory": os.getcwd(),
        "versions": versions(),
        "machine": doctor.machine(),
        "threads": torch.get_num_threads(),
    }
