"""A rate for each layer."""

from dataclasses import dataclass, field
from typing import Annotated

import torch

from clozeworks.core.bounds import Bound
from clozeworks.core.errors import RecipeError
from clozeworks.optim.optimizers.adamw import AdamW
from clozeworks.optim.optimizers.optimizer import Group, Optimizer


@dataclass(slots=True)
class LayerRates(Optimizer):
    """Any optimizer, each layer at `factor` times the rate of the layer above it (Howard & Ruder 2018, section 3.2).

    rate_l = rate factor^(L - l) for block l of L, from 0; the heads, the pooler and a norm after the stack at the full
    rate, the embedding at factor^(L + 1). What lower layers know is general and is kept; the upper ones learn the task.
    The published "discriminative" factor is 1 / 2.6; layer-wise decay in fine-tuning takes 0.8 or, for deep models, 0.9
    (Clark et al. 2020, code).

    A tensor that several layers share has the rate of the first of them, and so has the word table that a head uses.
    """

    optimizer: Optimizer = field(default_factory=AdamW)
    factor: Annotated[float, Bound(0, 1, above=True)] = 1 / 2.6

    def check(self, where: str) -> None:
        if isinstance(self.optimizer, LayerRates):
            needed = "the rates of layers are set once"
            raise RecipeError(f"{where}.optimizer", "LayerRates", needed, "multiply the two factors")

    @property
    def kept(self) -> int:
        return self.optimizer.kept

    @property
    def spare(self) -> int:
        return self.optimizer.spare

    def share(self, below: int) -> float:
        return self.factor**below

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        return self.optimizer.build(groups, learning_rate)
