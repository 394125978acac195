"""What checkpoints and their files are called; for whoever lists them without reading one."""

import re

MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
MEMORY = "memory.safetensors"
_NAME = re.compile(r"step-(\d{8,})")


def name_of(step: int) -> str:
    """The name of a checkpoint's directory; `step_of` reads it."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint by its name; None for other names."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None
