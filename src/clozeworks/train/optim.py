"""The optimizer, and its state as named tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clozeworks.errors import InputError
from clozeworks.train.settings import AdamW


def optimizer(model: nn.Module, settings: AdamW, learning_rate: float) -> torch.optim.AdamW:
    """AdamW, fused, in two groups: matrices and embeddings decay; biases and norms do not.

    A Parameter that several layers share stands in it once.
    """
    decay, keep = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decay if decays(name, parameter) else keep).append(parameter)
    groups = [{"params": decay, "weight_decay": settings.decay}, {"params": keep, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=settings.betas, eps=settings.eps, fused=True)


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: everything with two dimensions that is not a bias."""
    return parameter.ndim > 1 and name.rpartition(".")[2] != "bias"


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
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
            raise InputError(
                f"optimizer state {key}",
                f"shape {tuple(value.shape)}",
                f"the model has {shape}",
                "take the recipe this checkpoint was made with",
            )
        optimizer.state[parameter][moment] = value.to(parameter.device, copy=True)
