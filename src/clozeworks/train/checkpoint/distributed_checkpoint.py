"""Distributed checkpoints: written by the main process or by all, read by any number of processes.

Replicas are alike, so the main process writes the ordinary checkpoint. Shards write a file each, into the one directory
that the main process makes and, when all are done, commits. What streams of text remember lies in the process that
reads them; the main one gathers it.
"""

import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.process_group import ProcessGroup, is_sharded, local
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.exchange import checkpoint
from clozeworks.exchange.tensors import assign
from clozeworks.exchange.weights import sharded_safetensors
from clozeworks.optim import parameter_groups
from clozeworks.recipe import Recipe


def find(world: ProcessGroup, run: Path, upto: int | None = None) -> checkpoint.CheckpointSearch:
    """The newest sound checkpoint, up to a step if one is given: one process verifies, all take the same."""

    def look() -> dict[str, Any]:
        newest = checkpoint.find(run, upto)
        name = newest.checkpoint and newest.checkpoint.path.name
        return {"name": name, "state": newest.checkpoint and newest.checkpoint.state, "damaged": newest.damaged}

    choice = world.first(look)
    if choice["name"] is None:
        return checkpoint.CheckpointSearch(None, tuple(choice["damaged"]))
    one = checkpoint.Checkpoint(run / choice["name"], choice["state"]["step"], choice["state"])
    return checkpoint.CheckpointSearch(one, tuple(choice["damaged"]))


def gather_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds, by the name of its file; of a shard what is held here."""
    return {
        checkpoint.MODEL: dict(model.named_parameters()),
        checkpoint.OPTIMIZER: parameter_groups.read_state(model, optimizer),
    }


def save(
    world: ProcessGroup,
    run: Path,
    step: int,
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
    files: dict[str, bytes],
) -> None:
    """Of shards, collective: all come here, and leave when the checkpoint has its name."""
    assert all(map(is_sharded, tensors[checkpoint.MODEL].values())), "scatter them first"
    if world.main:
        checkpoint.save(run, step, {}, state, files, also=lambda new: _write(world, str(new), tensors))
    else:
        _write(world, "", tensors)
    world.wait()


def _write(world: ProcessGroup, directory: str, tensors: dict[str, dict[str, Tensor]]) -> None:
    """The files of this process, into the directory that the main one names."""
    new = Path(world.first(lambda: directory))
    with atomic_io.explain_os_errors(new):
        for file, content in tensors.items():
            path = new / sharded_safetensors.part_of(file, world.rank, world.size)
            sharded_safetensors.write(path, content, world.rank, world.size)
            with path.open("rb") as written:
                os.fsync(written.fileno())
    world.wait()


def memory_files(world: ProcessGroup, memory: SegmentMemory) -> dict[str, bytes]:
    """The file of what the streams of all processes remember, for the main one to save; collective."""
    longest = max(world.joined((memory.length,)))
    state = {name: world.rows(rows) for name, rows in memory.state(longest).items()}
    return {checkpoint.MEMORY: safetensors.torch.save(state)} if state and world.main else {}


def memory_bytes(recipe: Recipe) -> int:
    """How large that file becomes."""
    encoder, streams = recipe.encoder, getattr(recipe.objective.segments, "streams", 0)
    if encoder.stack.stateful and encoder.stack.memory:
        width, numbers = encoder.width, 0
        for mixer in (encoder.stack.block_at(layer).mixer for layer in range(encoder.stack.depth)):
            width = mixer.out_width(width)
            numbers += width + (getattr(mixer, "cells", None) or width)
        return 4 * streams * numbers
    return 4 * encoder.stack.memory * streams * encoder.stack.depth * encoder.width


def restore(
    world: ProcessGroup,
    saved: checkpoint.Checkpoint,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    memory: SegmentMemory | None = None,
) -> None:
    """Fill the parameters, the optimizer and what is remembered; of a shard only its rows are read."""
    if memory is not None:
        kept = saved.tensors(checkpoint.MEMORY) if (saved.path / checkpoint.MEMORY).is_file() else {}
        # Each process has the streams that the loader gives it.
        mine = {name: torch.tensor_split(rows, world.size)[world.rank] for name, rows in kept.items()}
        memory.load(mine, next(model.parameters()).device)
    if not world.sharded:
        assign(model, saved.tensors(), saved.path)
        parameter_groups.restore(model, optimizer, saved.tensors(checkpoint.OPTIMIZER))
        return
    parameters = dict(model.named_parameters())
    with sharded_safetensors.Slices(saved.path, checkpoint.MODEL) as kept, torch.no_grad():
        for name, parameter in parameters.items():
            _expect(kept, name, parameter, saved.path)
            local(parameter).copy_(_rows(world, kept, name, parameter))
    optimizer.state.clear()
    with sharded_safetensors.Slices(saved.path, checkpoint.OPTIMIZER) as kept, torch.no_grad():
        for key in kept:
            name, _, moment = key.rpartition(".")
            if kept.shape(key) == ():
                value = kept.rows(key)
                counted_here = moment == "step" and not optimizer.defaults.get("fused")
                optimizer.state[parameters[name]][moment] = value if counted_here else value.to(parameters[name].device)
                continue
            _expect(kept, key, parameters[name], saved.path)
            value = torch.zeros_like(parameters[name])
            local(value).copy_(_rows(world, kept, key, parameters[name]))
            optimizer.state[parameters[name]][moment] = value


def begin(world: ProcessGroup, fresh: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Fill the parameters from a whole model, and let the optimizer forget."""
    optimizer.state.clear()
    with torch.no_grad():
        for parameter, first in zip(model.parameters(), fresh.parameters(), strict=True):
            rows = sharded_safetensors.begin_of(parameter, world.rank, world.size) if is_sharded(parameter) else 0
            held = local(parameter)
            held.copy_(first[rows : rows + len(held)] if is_sharded(parameter) else first)


def _rows(world: ProcessGroup, kept: sharded_safetensors.Slices, name: str, like: Tensor) -> Tensor:
    """The rows of a tensor that this process holds of one of its shape."""
    if not is_sharded(like):
        return kept.rows(name)
    begin = sharded_safetensors.begin_of(like, world.rank, world.size)
    return kept.rows(name, begin, begin + len(local(like)))


def _expect(kept: sharded_safetensors.Slices, name: str, parameter: Tensor, where: Path) -> None:
    if kept.shape(name) != tuple(parameter.shape):
        given, needed = f"{name} of shape {kept.shape(name)}", f"{tuple(parameter.shape)} is needed"
        raise InputError(where, given, needed, "take the recipe this checkpoint was made with")
