"""What every optimizer of a recipe owes: a torch optimizer over groups of parameters that are treated alike."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clozeworks.core.bounds import NonNegative, Positive, Rate
from clozeworks.core.spec import Spec


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that are treated alike."""

    parameters: list[nn.Parameter]
    decays: bool  # matrices and embeddings do, biases and norms do not
    share: float = 1.0  # of the rate of each step
    hidden: frozenset[int] = frozenset()  # the ids of those that are matrices of a stack

    def options(self, learning_rate: float, **more: Any) -> dict[str, Any]:
        """The group as torch takes it; the loop multiplies the rate of every step by `share`."""
        return {"params": self.parameters, "lr": learning_rate * self.share, "share": self.share, **more}


@dataclass(slots=True)
class Optimizer(Spec):
    """How a gradient becomes an update. Its state is tensors by parameter, so a checkpoint holds it bit for bit."""

    @abstractmethod
    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        """The optimizer over these groups."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """Numbers kept for each weight between updates."""

    @property
    def spare(self) -> int:
        """Numbers for each weight that an update needs while it is made."""
        return 0

    def share(self, below: int, depth: int) -> float:
        """The part of the rate that a layer gets which stands so many layers below the heads; below all blocks, whose
        number is `depth`, is the embedding."""
        return 1.0


@dataclass(slots=True)
class Moments(Optimizer):
    """The optimizers that keep two averages of each gradient g, and decay weights apart from them.

    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    """

    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Positive = 1e-6
    decay: NonNegative = 0.01

    @property
    def kept(self) -> int:
        return 2

    def decay_of(self, group: Group) -> float:
        return self.decay if group.decays else 0.0
