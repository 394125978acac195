"""Adagrad, each tensor clipped by itself."""

# pyright: reportPrivateImportUsage=false
# torch has no other name for its operations on lists of tensors, which are one kernel for many on a GPU.

from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.core.bounds import NonNegative, Positive
from clozeworks.core.process_group import local
from clozeworks.optim.optimizers.optimizer import Group, Optimizer
from clozeworks.optim.optimizers.state import norms, with_gradient


@dataclass(slots=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011) whose rate shrinks for a tensor with a long gradient (Sukhbaatar et al. 2019, code).

    G <- G + g^2;  p <- p - rate min(1, clip / |g|) g / (sqrt(G) + eps);  G begins at `start`

    `clip` is for the norm of each tensor's own gradient, and shortens the update only: G takes the gradient as it
    is. None: never. It is another clip than `train.clip`, the norm of all gradients together, which the published
    runs leave out (None). No weight decay.
    """

    clip: Positive | None = 0.03
    eps: Positive = 1e-10
    start: NonNegative = 0.0

    @property
    def kept(self) -> int:
        return 1

    @property
    def spare(self) -> int:
        return 1

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        options = [group.options(learning_rate) for group in groups]
        return ClippedAdagrad(options, {"clip": self.clip, "eps": self.eps, "start": self.start})


class ClippedAdagrad(torch.optim.Optimizer):
    """The updates of `Adagrad`, all tensors of a group at once."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = with_gradient(group)
            if not parameters:
                continue
            gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["sum"] = torch.full_like(parameter, group["start"])
            sums: list[Tensor] = [local(self.state[parameter]["sum"]) for parameter in parameters]
            torch._foreach_addcmul_(sums, gradients, gradients)
            updates = list(torch._foreach_sqrt(sums))
            torch._foreach_add_(updates, group["eps"])
            torch._foreach_reciprocal_(updates)
            torch._foreach_mul_(updates, gradients)
            if group["clip"] is not None:
                lengths = norms(gradients, group)
                torch._foreach_mul_(updates, list((group["clip"] / (lengths + 1e-10)).clamp(max=1.0).unbind()))
            torch._foreach_add_([local(parameter) for parameter in parameters], updates, alpha=-group["lr"])
