"""The two moments and the count of updates of each parameter, under torch's own names."""

# pyright: reportPrivateImportUsage=false
# torch has no other name for its operations on lists of tensors.

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.process_group import is_sharded, local, squares


@dataclass(frozen=True, slots=True)
class MomentBatch:
    """Parameters that have been updated equally often, this update included, for torch's functions over lists.

    Of sharded ones the rows that are held here: what is computed for each number needs no others.
    """

    count: int
    parameters: list[Tensor]
    gradients: list[Tensor]
    means: list[Tensor]  # of the gradients
    squares: list[Tensor]  # their mean squares


def batches(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Iterator[MomentBatch]:
    """Count one more update of every parameter of the group that has a gradient; usually they make one batch.

    The counts stay in main memory: to read them, nobody waits for a device.
    """
    by_count: dict[int, list[Tensor]] = defaultdict(list)
    for parameter in with_gradient(group):
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["step"] += 1
        by_count[int(state["step"])].append(parameter)
    for count, parameters in by_count.items():
        states = [optimizer.state[parameter] for parameter in parameters]
        yield MomentBatch(
            count,
            [local(parameter) for parameter in parameters],
            [local(parameter.grad) for parameter in parameters if parameter.grad is not None],
            [local(state["exp_avg"]) for state in states],
            [local(state["exp_avg_sq"]) for state in states],
        )


def with_gradient(group: dict[str, Any]) -> list[Tensor]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def norms(tensors: list[Tensor], group: dict[str, Any]) -> Tensor:
    """The norm of each whole tensor; where the group's are sharded, all processes add up their parts, in one go."""
    own = torch.stack(torch._foreach_norm(tensors))
    if not any(is_sharded(parameter) for parameter in group["params"]):
        return own
    parts = squares(own)
    torch.distributed.all_reduce(parts)
    return parts.sqrt().to(own.dtype)
