"""The optimizer of a model, and its state as named tensors."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clozeworks.core.errors import InputError
from clozeworks.nn.int8.parts import holds_int8, refuse_int8
from clozeworks.optim.optimizers.optimizer import Group, Optimizer

_BLOCK = re.compile(r"(?:^|\.)encoder\.stack\.(?:back\.)?blocks\.(\d+)\.")
_EMBED = re.compile(r"(?:^|\.)encoder\.embed\.")


def build_optimizer(model: nn.Module, settings: Optimizer, learning_rate: float) -> torch.optim.Optimizer:
    """What the recipe asks for, over the parameters of a model."""
    refuse_int8("the model", holds_int8(model), "training")
    return settings.build(make_groups(model, settings), learning_rate)


def make_groups(model: nn.Module, settings: Optimizer) -> list[Group]:
    """Parameters by the share of the rate they get, the largest first, those that decay before those that do not.

    A Parameter that several layers share stands in it once, under the first of them.
    """
    depth = count_blocks(model)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    hidden: set[int] = set()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            key = settings.share(layers_below(name, depth), depth), decays(name, parameter)
            groups.setdefault(key, []).append(parameter)
            if ".stack." in name and name.endswith(".weight") and parameter.ndim == 2:
                hidden.add(id(parameter))
    return [
        Group(groups[share, decay], decay, share, frozenset(hidden)) for share, decay in sorted(groups, reverse=True)
    ]


def count_blocks(model: nn.Module) -> int:
    """Blocks of the encoder, those too whose parameters are all another's."""
    numbers = [match[1] for name, _ in model.named_parameters(remove_duplicate=False) if (match := _BLOCK.search(name))]
    return max(map(int, numbers), default=-1) + 1


def layers_below(name: str, depth: int) -> int:
    """How far a parameter stands below the heads: they 0, the last block 1, the embedding furthest."""
    if match := _BLOCK.search(name):
        return depth - int(match[1])
    return depth + 1 if _EMBED.search(name) else 0


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: everything with two dimensions that is not a bias or a vector of one."""
    return parameter.ndim > 1 and "bias" not in name.split(".")[-2:]


def read_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The moments and the count of updates of each parameter, as `<parameter>.<moment>`."""
    return {
        f"{name}.{moment}": value
        for name, parameter in model.named_parameters()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """The inverse of `state_of`, bit for bit.

    Not through `load_state_dict`, which knows parameters by their number: a name says what went wrong.
    """
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, value in state.items():
        name, _, moment = key.rpartition(".")
        parameter = parameters.get(name)
        if parameter is None or (value.ndim and value.shape != parameter.shape):
            shape = "no such parameter" if parameter is None else f"a shape of {tuple(parameter.shape)}"
            needed = f"the model has {shape}"
            todo = "take the recipe this checkpoint was made with"
            raise InputError(f"optimizer state {key}", f"shape {tuple(value.shape)}", needed, todo)
        # Torch's fused optimizers count on the device, ours in main memory.
        counted_here = moment == "step" and not optimizer.defaults.get("fused")
        optimizer.state[parameter][moment] = value.to("cpu" if counted_here else parameter.device, copy=True)
