"""How parameters begin that belong to no matrix, table, norm or bias."""

import torch
from torch import Tensor, nn


class CustomInit(nn.Module):
    """A module with such parameters of its own: N(0, deviation) each, unless its `begin` says otherwise."""

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        """Fill one of its own parameters, in place; nothing but the generator may be drawn from."""
        nn.init.normal_(parameter, 0.0, deviation, generator)
