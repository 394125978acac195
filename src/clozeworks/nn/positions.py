"""Where a token stands."""

from dataclasses import dataclass

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


def sinusoids(position: Tensor, width: int) -> Tensor:
    """[..., D] of positions [...]: sin(p / 10000^(2i / D)), then the cosines of the same (Vaswani et al. 2017, 3.5)."""
    rates = 10_000.0 ** -(torch.arange(0, width, 2, device=position.device) / width)
    angles = position[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)
