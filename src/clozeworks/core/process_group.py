"""The process group that trains one model, data parallel, as the loop sees it: here the group of one process.

Everything collective goes through these methods, so that the loop reads the same for one process and for many.
`train.distributed` has the groups of several; nothing of torch.distributed is needed before.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Value = TypeVar("Value")


class LostError(RuntimeError):
    """Other processes of the group are gone: the first that went says what happened."""


def is_distributed() -> bool:
    """Whether this process was started as one of a group, by torchrun or in its manner."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@dataclass(slots=True)
class ProcessGroup:
    """Who this process is among `size`. Losses and gradients are sums over all of them, never means."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those of this machine
    asked: Callable[[], int] = field(default=int)  # number of the signal that asked this process to stop, or 0

    @property
    def main(self) -> bool:
        """Whether this process writes, shows and measures."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether each process holds a part of every tensor only."""
        return False

    @property
    def factor(self) -> int:
        """What a loss is multiplied by so that its gradients come out summed."""
        return 1

    @property
    def stopping(self) -> int:
        """Number of the signal that asked any process to stop, the same on all of them after the same step."""
        return self.asked()

    def together(self) -> contextlib.AbstractContextManager[None]:
        """While it is open, `LostError` says that others are gone."""
        return contextlib.nullcontext()

    def device(self, name: str) -> str:
        """The device of this process, where `name` may be a kind of them."""
        return name

    def place(self, model: nn.Module) -> None:
        """Lay the parameters out; before an optimizer is made of them."""

    def scatter(self, model: nn.Module) -> None:
        """After passes that no backward pass followed: every process holds its own part again, and no more."""

    @contextlib.contextmanager
    def running(self, model: nn.Module, last: bool):
        """Give what to call instead of the model; gradients are those of the whole group once the `last` pass ends."""
        yield model

    def totals(self, counts: list[int]) -> list[int]:
        """Whole numbers of the host, summed."""
        return counts

    def settled(self, means: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Parts of the means of a step summed; the norm of the whole gradient from that of what is held here."""
        return means, norm

    def joined(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the first process, then of the second, ..."""
        return numbers

    def rows(self, tensor: Tensor) -> Tensor:
        """On the host of the main process: the rows [n, ...] of the first process, then of the second, ..."""
        return tensor.cpu()

    def first(self, compute: Callable[[], Value]) -> Value:
        """What the main process computes, which is JSON."""
        return compute()

    def wait(self) -> None:
        """Continue when all are here."""

    def leave(self) -> None:
        """After the last collective."""


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: of a sharded one its rows, of any other all."""
    held: Any = tensor
    return held.to_local() if is_sharded(tensor) else tensor


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    """Those there are, as held here."""
    return [local(parameter.grad) for parameter in parameters if parameter.grad is not None]


def squares(norms: Tensor) -> Tensor:
    """For sums over processes: in double precision, so that no finite norm overflows."""
    return torch.square(norms.double())
