"""Whether a run fits into memory, said before its first step."""

import copy
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from clozeworks.exchange.bundle import Bundle
from clozeworks.machine import doctor
from clozeworks.recipe import Recipe
from clozeworks.train.resources.cost import MemoryCost, measure_memory


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes: all that a run will hold, what this process holds of it already, and what is free beside that."""

    need: int
    held: int
    free: int | None  # None: the system does not tell

    @property
    def fits(self) -> bool:
        return self.free is None or self.need - self.held <= self.free


def free_bytes(cost: MemoryCost, device: str) -> Room:
    """Of a device its own memory, where Python and the copy that is saved are not."""
    return Room(cost.on_device if device.startswith("cuda") else cost.memory, *available(device))


def available(device: str) -> tuple[int, int | None]:
    """Bytes that this process holds of a device's memory, and those that are free beside them; None: unknown."""
    if device.startswith("cuda"):
        return torch.cuda.memory_reserved(device), torch.cuda.mem_get_info(device)[0]
    return held_bytes(), doctor.memory()[1]


def describe(recipe: Recipe, device: str, teacher: Bundle | None = None) -> str:
    """One sentence for the user: what is needed, what is free, and what to do if that is too little."""
    memory = free_bytes(measure_memory(recipe, teacher), device)
    need = f"needs about {gigabytes(memory.need)} of memory"
    if memory.free is None:
        return need
    if memory.fits:
        return f"{need}; {gigabytes(memory.free + memory.held)} are free"
    smaller = advice(recipe, device, teacher)
    todo = f"set train.micro_tokens={smaller}" if smaller else "take a smaller model, or shorter examples"
    return f"memory is short: this {need}, and {gigabytes(memory.free + memory.held)} are free; {todo}"


def advice(recipe: Recipe, device: str, teacher: Bundle | None = None) -> int | None:
    """The largest halving of the micro-batch that fits: it changes memory and nothing else."""
    recipe = copy.deepcopy(recipe)
    tokens = recipe.train.micro_tokens or recipe.train.batch_tokens
    while (tokens := tokens // 2) >= recipe.longest():
        recipe.train.micro_tokens = tokens
        if free_bytes(measure_memory(recipe, teacher), device).fits:
            return tokens
    return None


def held_bytes() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"
