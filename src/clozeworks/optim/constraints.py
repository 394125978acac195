"""Parameters that have to stay within bounds, put back there after each update."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


def list_constrained(model: nn.Module) -> list[Any]:
    """The modules with such parameters: those that have a `constrain`."""
    return [module for module in model.modules() if hasattr(module, "constrain")]


def constrain(modules: Sequence[Any]) -> None:
    """Put them back, and tell each module what it wants to know of them on the host, after one wait for all."""
    asked = [(module, value) for module in modules if (value := module.constrain()) is not None]
    if asked:
        for (module, _), known in zip(asked, torch.stack([value for _, value in asked]).tolist(), strict=True):
            module.know(known)
