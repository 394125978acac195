"""Layer-wise adaptive moments for large batches."""

# pyright: reportPrivateImportUsage=false
# torch has no other name for its operations on lists of tensors, which are one kernel for many on a GPU.

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.optim.optimizers.optimizer import Group, Moments
from clozeworks.optim.optimizers.state import batches, norms


@dataclass(slots=True)
class Lamb(Moments):
    """Adam whose update of each tensor is made as long as the tensor itself (You et al. 2019; Lan et al. 2019).

    u = m / (sqrt(v) + eps) + decay p;  p <- p - rate ratio u;  ratio = |p| / |u|, or 1 where either is 0

    One ratio for each tensor, its norm taken as it is (the paper's phi is the identity). Biases and norms neither
    decay nor are adapted: their ratio is 1. With `correction`, m and v are first divided by 1 - b1^t and 1 - b2^t, as
    in the paper's algorithm; without, as in the code that trained the published models.
    """

    correction: bool = False

    @property
    def spare(self) -> int:
        return 1

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        options = [
            group.options(learning_rate, weight_decay=self.decay_of(group), adapts=group.decays) for group in groups
        ]
        return AdaptedAdam(options, {"betas": self.betas, "eps": self.eps, "correction": self.correction})


class AdaptedAdam(torch.optim.Optimizer):
    """Adam, with each tensor's update scaled by the norms of the tensor and of the update."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for batch in batches(self, group):
                torch._foreach_lerp_(batch.means, batch.gradients, 1 - beta1)
                torch._foreach_mul_(batch.squares, beta2)
                torch._foreach_addcmul_(batch.squares, batch.gradients, batch.gradients, 1 - beta2)
                updates = list(torch._foreach_sqrt(batch.squares))
                if group["correction"]:
                    torch._foreach_div_(updates, math.sqrt(1 - beta2**batch.count))
                torch._foreach_add_(updates, group["eps"])
                torch._foreach_reciprocal_(updates)  # in place: one copy of the weights beside the moments, not two
                torch._foreach_mul_(updates, batch.means)
                if group["correction"]:
                    torch._foreach_div_(updates, 1 - beta1**batch.count)
                if group["weight_decay"]:
                    torch._foreach_add_(updates, batch.parameters, alpha=group["weight_decay"])
                if group["adapts"]:
                    torch._foreach_mul_(
                        updates, ratios(*(norms(tensors, group) for tensors in (batch.parameters, updates)))
                    )
                torch._foreach_add_(batch.parameters, updates, alpha=-group["lr"])


def ratios(weights: Tensor, steps: Tensor) -> list[Tensor]:
    """|p| / |u| of each tensor, from these norms, still on the device; 1 where either is 0."""
    return list(torch.where((weights > 0) & (steps > 0), weights / steps, 1.0).unbind())
