"""What every optimizer of a recipe owes: a torch optimizer over groups of parameters that are treated alike."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that are treated alike."""

    parameters: list[nn.Parameter]
    decays: bool  # matrices and embeddings do, biases and norms do not
    share: float = 1.0  # of the rate of each step

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

    def share(self, below: int) -> float:
        """The part of the rate that a layer gets which stands so many layers below the heads."""
        return 1.0


@dataclass(slots=True)
class Moments(Optimizer):
    """The optimizers that keep two averages of each gradient g, and decay weights apart from them.

    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    decay: float = 0.01

    @property
    def kept(self) -> int:
        return 2

    def check(self, where: str) -> None:
        for index, beta in enumerate(self.betas):
            if not 0 <= beta < 1:
                raise RecipeError(f"{where}.betas.{index}", beta, "0 or more and below 1 is needed", "0.9 is usual")
        if not self.eps > 0:
            raise RecipeError(f"{where}.eps", self.eps, "a positive number is needed", "1e-6 is usual")
        if not self.decay >= 0:
            raise RecipeError(f"{where}.decay", self.decay, "0 or more is needed", "0.01 is usual")

    def decay_of(self, group: Group) -> float:
        return self.decay if group.decays else 0.0
