"""Checkpoints: whole or absent, known by their hashes, the newest sound one taken up again.

    run/step-00000500/  model.safetensors  optimizer.safetensors  state.json  manifest.json
                        recipe.json  tokenizer.json  tokenizer_config.json

A model that remembers what it has read has a memory.safetensors, too, with a row for each stream of the text.
Where processes hold parts of the tensors, each writes its own files (`sharded_safetensors`); the rest is the same.
The directory takes its name only when every byte is on the disk (`atomic_io.directory`), and older ones are deleted
only after that. safetensors itself accepts flipped bits, hence the manifest of SHA-256 hashes. Recipe and tokenizer
make it a model directory of its own. There is no gradient scaler in it: bf16 has the range of fp32 and needs none.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.exchange.checkpoint_names import MANIFEST, MEMORY, MODEL, OPTIMIZER, STATE, name_of, step_of
from clozeworks.exchange.weights import sharded_safetensors

__all__ = ["MANIFEST", "MEMORY", "MODEL", "OPTIMIZER", "STATE"]
_SLACK = 1 << 20  # for what is not tensors


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are what its manifest says."""

    path: Path
    step: int
    state: dict[str, Any]

    def tensors(self, file: str = MODEL) -> dict[str, Tensor]:
        """Every tensor of one of its files, whole."""
        return sharded_safetensors.read(self.path, file)


@dataclass(frozen=True, slots=True)
class CheckpointSearch:
    """The newest sound checkpoint of a run, if any, and a sentence for each newer one that is damaged."""

    checkpoint: Checkpoint | None
    damaged: tuple[str, ...] = ()


def save(
    run: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
    also: Callable[[Path], None] | None = None,
) -> Path:
    """Write the checkpoint of a step: `tensors` and `files` by file name, and its state.

    `also` may add files to the directory before it is sealed.
    """
    path, files = run / name_of(step), files or {}
    size = sum(tensor.nbytes for file in tensors.values() for tensor in file.values())
    _need_room(path, size + sum(map(len, files.values())) + _SLACK)
    # A damaged one of the same step may be in the way.
    with atomic_io.directory(path, overwrite=True) as new:
        for name, content in tensors.items():
            safetensors.torch.save_file(
                {key: value.detach().cpu().contiguous() for key, value in content.items()}, new / name
            )
        for name, content in files.items():
            (new / name).write_bytes(content)
        if also is not None:
            also(new)
        (new / STATE).write_text(json.dumps({"step": step, **state}, indent=2, allow_nan=False) + "\n")
        facts = {file.name: {"bytes": file.stat().st_size, "sha256": _hash(file)} for file in sorted(new.iterdir())}
        (new / MANIFEST).write_text(json.dumps({"files": facts}, indent=2) + "\n")
    return path


def prune(run: Path, step: int, keep: Callable[[list[int]], set[int]]) -> None:
    """Of the checkpoints up to a step leave those that `keep` chooses, and the one of the step in any case.

    Newer ones can only be damaged, or they would have been continued from: they do not count.
    """
    there = {number: path for number, path in _list_checkpoints(run) if number <= step}
    for number in there.keys() - keep(list(there)) - {step}:
        _delete(there[number])


def drop_after(run: Path, step: int) -> None:
    """Delete the checkpoints of later steps."""
    for number, path in _list_checkpoints(run):
        if number > step:
            _delete(path)


def newest(run: Path) -> Checkpoint | None:
    """The newest checkpoint of a run that verifies."""
    return find(run).checkpoint


def find(run: Path, upto: int | None = None) -> CheckpointSearch:
    """Look at the checkpoints of a run, those up to a step if one is given, from the newest down until one verifies."""
    damaged: list[str] = []
    for number, path in _list_checkpoints(run):
        if upto is not None and number > upto:
            continue
        try:
            return CheckpointSearch(verify(path), tuple(damaged))
        except DamagedError as error:
            damaged.append(str(error))
    return CheckpointSearch(None, tuple(damaged))


class DamagedError(Exception):
    """A checkpoint that is not what was saved, and how."""


def verify(path: Path) -> Checkpoint:
    """Hold every file to the manifest."""
    files = _read_json(path, MANIFEST).get("files")
    if not isinstance(files, dict) or STATE not in files or not sharded_safetensors.complete(files, MODEL):
        raise DamagedError(f"{path.name}: {MANIFEST} does not list what a checkpoint holds")
    for name, fact in files.items():
        file, fact = path / name, fact if isinstance(fact, dict) else {}
        if not file.is_file():
            raise DamagedError(f"{path.name}: {name} is missing")
        if file.stat().st_size != fact.get("bytes"):
            raise DamagedError(f"{path.name}: {name} has {file.stat().st_size} bytes instead of {fact.get('bytes')}")
        if _hash(file) != fact.get("sha256"):
            raise DamagedError(f"{path.name}: the content of {name} has changed")
    state = _read_json(path, STATE)
    return Checkpoint(path, state["step"], state)


def _list_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """Checkpoints, newest first; unfinished ones have other names."""
    if not run.is_dir():
        return []
    checkpoints = [(step, path) for path in run.iterdir() if (step := step_of(path.name)) is not None]
    return sorted(checkpoints, reverse=True)


def _delete(path: Path) -> None:
    # The manifest first: what a kill in the middle leaves cannot be taken for a checkpoint. A disk that lets nothing
    # be deleted is no reason to end a run: the next save tries again.
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        value = read_json(path / name)
    except FileNotFoundError:
        raise DamagedError(f"{path.name}: {name} is missing") from None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path.name}: {name} cannot be read ({error})") from None
    return value if isinstance(value, dict) else {}


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def expect_room(run: Path, model: nn.Module, more: int = 0) -> None:
    """Refuse before the first step what the first save would refuse: weights, two moments and `more` bytes must fit."""
    weights = sum(parameter.nbytes for parameter in model.parameters())
    _need_room(run / name_of(0), 3 * weights + more + _SLACK)


def _need_room(path: Path, size: int) -> None:
    """Refuse what the disk has no room for."""
    there = next(parent for parent in path.absolute().parents if parent.is_dir())
    free = shutil.disk_usage(there).free
    if free < size:
        given, needed = f"{free / 1e6:,.0f} MB are free", f"a checkpoint takes {size / 1e6:,.0f} MB"
        raise InputError(path, given, needed, "free some space and run the same command again")
