"""A rate for each layer, and one for the embedding."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated

import torch

from clozeworks.core.bounds import Bound
from clozeworks.core.errors import RecipeError
from clozeworks.optim.optimizers.adamw import AdamW
from clozeworks.optim.optimizers.optimizer import Group, Optimizer

Factor = Annotated[float, Bound(0, 1, above=True)]


@dataclass(slots=True)
class Rates(Optimizer):
    """Any optimizer, some parameters of which learn at a share of the rate."""

    optimizer: Optimizer = field(default_factory=AdamW)

    def check(self, where: str) -> None:
        if isinstance(self.optimizer, type(self)):
            needed = "these rates are set once"
            raise RecipeError(f"{where}.optimizer", type(self).__name__, needed, "multiply the two factors")

    @property
    def kept(self) -> int:
        return self.optimizer.kept

    @property
    def spare(self) -> int:
        return self.optimizer.spare

    @abstractmethod
    def share(self, below: int, depth: int) -> float: ...

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        return self.optimizer.build(groups, learning_rate)


@dataclass(slots=True)
class LayerRates(Rates):
    """Any optimizer, each layer at `factor` times the rate of the layer above it (Howard & Ruder 2018, section 3.2).

    rate_l = rate factor^(L - l) for block l of L, from 0; the heads, the pooler and a norm after the stack at the full
    rate, the embedding at factor^(L + 1). What lower layers know is general and is kept; the upper ones learn the task.
    The published "discriminative" factor is 1 / 2.6; layer-wise decay in fine-tuning takes 0.8 or, for deep models, 0.9
    (Clark et al. 2020, code).

    A tensor that several layers share has the rate of the first of them, and so has the word table that a head uses.
    """

    factor: Factor = 1 / 2.6

    def share(self, below: int, depth: int) -> float:
        return self.factor**below * self.optimizer.share(below, depth)


@dataclass(slots=True)
class EmbeddingRate(Rates):
    """Any optimizer, the embedding at `factor` times the rate of everything else.

    A table that begins as what was counted is near what labels need; a small model that trains for minutes bends it to
    its masked words. Slower, it keeps what it knew, and masked words lose little by it (LOG.md).
    """

    factor: Factor = 0.3

    def share(self, below: int, depth: int) -> float:
        return (self.factor if below > depth else 1.0) * self.optimizer.share(below, depth)
