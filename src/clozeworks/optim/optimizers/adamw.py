"""Adam with decoupled weight decay, as torch has it."""

from dataclasses import dataclass

import torch

from clozeworks.optim.optimizers.optimizer import Group, Moments


@dataclass(slots=True)
class AdamW(Moments):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); biases and norms do not decay.

    p <- p - rate (m' / (sqrt(v') + eps) + decay p) with m' = m / (1 - b1^t), v' = v / (1 - b2^t): the averages begin at
    0, and dividing by what they lack makes the first updates as large as the later ones. Torch's fused kernel.
    """

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        options = [group.options(learning_rate, weight_decay=self.decay_of(group)) for group in groups]
        return torch.optim.AdamW(options, lr=learning_rate, betas=self.betas, eps=self.eps, fused=True)
