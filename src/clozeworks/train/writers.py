"""Where else the rows of metrics.jsonl may go: TensorBoard, Weights & Biases, or anything with `write` and `close`.

They are no part of a recipe: the same run with and without them is the same run. A package is imported when the first
row comes, so a run that is refused leaves nothing behind.
"""

import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from clozeworks.core.errors import InputError, suggest

Row = dict[str, Any]


class Writer(Protocol):
    """Takes each row as metrics.jsonl has it, in order; after a restart, the rows after the checkpoint once more."""

    def write(self, row: Row) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Scalars under RUN/tensorboard. What an earlier session wrote beyond its checkpoint is hidden, not doubled."""

    def __init__(self, run: Path):
        _need("tensorboard", "clozeworks[watch]")
        self.place, self._inner = run / "tensorboard", None

    def write(self, row: Row) -> None:
        if self._inner is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._inner = SummaryWriter(str(self.place), purge_step=row["step"], flush_secs=10)
        for name, value in scalars(row).items():
            self._inner.add_scalar(name, value, row["step"])

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class WeightsAndBiases:
    """A run of the project WANDB_PROJECT (clozeworks); WANDB_MODE=offline and the like are its own to heed.

    A run that is resumed keeps its identity. The step is a field of its own, for their counter cannot go back to a
    checkpoint; rows that come a second time are equal to those that came first.
    """

    def __init__(self, run: Path):
        _need("wandb", "wandb")
        self.run, self._inner = run, None

    def write(self, row: Row) -> None:
        """Log a row; the first one opens the run there."""
        if self._inner is None:
            import wandb  # pyright: ignore[reportMissingImports]

            recipe = json.loads((self.run / "recipe.json").read_bytes())
            begun = json.loads((self.run / "run.json").read_bytes())["sessions"][0]
            self._inner = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "clozeworks"),
                name=self.run.resolve().name,
                id=hashlib.sha256(json.dumps(begun, sort_keys=True).encode()).hexdigest()[:16],
                resume="allow",
                dir=str(self.run),
                config=recipe,
            )
            self._inner.define_metric("*", step_metric="step")
        self._inner.log({"step": row["step"], **scalars(row)})

    def close(self) -> None:
        if self._inner is not None:
            self._inner.finish()


KINDS: dict[str, Callable[[Path], Writer]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def named(names: Iterable[str], run: str | os.PathLike[str]) -> list[Writer]:
    """Writers by name, each once; one whose package is missing is refused with the command that installs it."""
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in KINDS:
            raise InputError("--log", name, "there is no such writer", suggest(name, KINDS))
    return [KINDS[name](Path(run)) for name in chosen]


class Writers:
    """Several as one. One that fails is said and left out: what only watches must not end a run."""

    def __init__(self, writers: Iterable[Writer], say: Callable[[str], None]):
        self.writers, self.say = list(writers), say

    def write(self, row: Row) -> None:
        for writer in list(self.writers):
            self._try(writer, lambda writer=writer: writer.write(row))

    def close(self) -> None:
        for writer in list(self.writers):
            self._try(writer, writer.close)

    def _try(self, writer: Writer, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.writers.remove(writer)
            reason = " ".join(str(error).split()) or type(error).__name__
            self.say(f"{type(writer).__name__} is left out from here on ({reason}); metrics.jsonl has every row")


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a row by split: train/loss, heldout/loss."""
    split = row.get("split", "train")
    return {
        f"{split}/{name}": float(value)
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and math.isfinite(value)
    }


def _need(package: str, install: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise InputError(f"--log {package}", "it is not installed", f"the package {package} is needed",
                         f"pip install '{install}'")  # fmt: skip
