"""Where a token stands."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from clozeworks.errors import RecipeError
from clozeworks.spec import Spec


@dataclass(slots=True)
class LearnedPositions(Spec):
    """One learned vector a position, added to the word's (Devlin et al. 2018).

    `offset` rows stand unused before position 0: RoBERTa counts from padding_idx + 1 = 2 and so keeps 514 rows for 512.
    """

    length: int = 512
    offset: int = 0

    def check(self, where: str) -> None:
        if self.length < 1:
            raise RecipeError(f"{where}.length", self.length, "at least one position is needed", "use 512")

    def build(self, width: int) -> "LearnedPositionsLayer":
        return LearnedPositionsLayer(self.length + self.offset, width, self.offset)


class LearnedPositionsLayer(nn.Module):
    def __init__(self, rows: int, width: int, offset: int):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.offset = offset

    def forward(self, position: Tensor) -> Tensor:
        return self.table(position + self.offset if self.offset else position)


@dataclass(slots=True)
class SinusoidalPositions(Spec):
    """A fixed vector a position, added to the word's: sin and cos of p / 10000^(2i / D) (Vaswani et al. 2017, 3.5).

    `order` = halves: all sines, then all cosines (the published code); pairs: sine and cosine in turn (the paper's
    formula). The one is the other with its units in another order. Any position has a vector.
    """

    order: Literal["halves", "pairs"] = "halves"

    def build(self, width: int) -> "SinusoidalPositionsLayer":
        return SinusoidalPositionsLayer(width, self.order == "pairs")


class SinusoidalPositionsLayer(nn.Module):
    def __init__(self, width: int, pairs: bool):
        super().__init__()
        self.width, self.pairs = width, pairs

    def forward(self, position: Tensor) -> Tensor:
        found = sinusoids(position, self.width)
        return found.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2) if self.pairs else found


def sinusoids(position: Tensor, width: int) -> Tensor:
    """[..., D] of positions [...]: sin(p / 10000^(2i / D)), then the cosines of the same (Vaswani et al. 2017, 3.5)."""
    rates = 10_000.0 ** -(torch.arange(0, width, 2, device=position.device) / width)
    angles = position[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)
