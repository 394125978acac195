"""Adam as the published pretraining code has it: the moments themselves are never corrected."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from clozeworks.optim.optimizers.optimizer import Group, Moments
from clozeworks.optim.optimizers.state import batches

FAR = 1e12  # a count of updates at which torch's correction of the moments is exactly 1


@dataclass(slots=True)
class Adam(Moments):
    """Adam with the uncorrected moments, and decay that is multiplied by the same step; biases and norms do not decay.

    p <- p - s (m / (sqrt(v) + eps) + decay p)

    without `correction` s = rate (Devlin et al. 2018, published code): at betas (0.9, 0.999) the first update is
    (1 - b1) / sqrt(1 - b2) = 3.2 times that of `AdamW`. With it s = rate sqrt(1 - b2^t) / (1 - b1^t) (Kingma & Ba 2014,
    end of section 2; Radford et al. 2018, published code, eps 1e-8): `AdamW` but for eps, which here is compared to the
    uncorrected root, and for the decay, which is as much smaller or larger at the beginning as the step is.

    t counts the updates of each tensor; the published code counts those of the model, which differs only for a
    tensor that gets no gradient in some steps.
    """

    correction: bool = False

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        options = [group.options(learning_rate, weight_decay=self.decay_of(group)) for group in groups]
        return UncorrectedAdam(options, {"betas": self.betas, "eps": self.eps, "correction": self.correction})


class UncorrectedAdam(torch.optim.Optimizer):
    """Torch's fused AdamW at a step that is given to it, so far on that it corrects nothing."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        far: dict[torch.device, Tensor] = {}
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for batch in batches(self, group):
                for parameter in batch.parameters:
                    if parameter.device not in far:
                        far[parameter.device] = torch.full((), FAR, device=parameter.device)
                adamw(
                    batch.parameters,
                    batch.gradients,
                    batch.means,
                    batch.squares,
                    [],
                    [far[parameter.device] for parameter in batch.parameters],
                    fused=True,
                    amsgrad=False,
                    beta1=beta1,
                    beta2=beta2,
                    lr=group["lr"] * (correction(batch.count, beta1, beta2) if group["correction"] else 1.0),
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    maximize=False,
                )


def correction(count: int, beta1: float, beta2: float) -> float:
    return math.sqrt(1 - beta2**count) / (1 - beta1**count)
