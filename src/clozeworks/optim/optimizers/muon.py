"""Updates of hidden matrices that turn them equally in every direction."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, NonNegative, Positive, Rate
from clozeworks.optim.optimizers.optimizer import Group, Moments

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: singular values from 0 to 1 soon lie about 1 (Jordan 2024)


@dataclass(slots=True)
class Muon(Moments):
    """Momentum, orthogonalized, for the matrices of the stack (Jordan 2024); AdamW for tables, norms, biases and heads.

    m <- `momentum` m + g;  u = g + `momentum` m;  O = NewtonSchulz(u) ~ U V^T of u = U S V^T
    p <- p - rate (scale sqrt(max(1, rows / columns)) O + decay p)
    NewtonSchulz, `rounds` times from X = u / |u|:  X <- a X + b (X X^T) X + c (X X^T)^2 X

    Every direction of a matrix is updated alike, the rare ones too, which a gradient hardly shows. `scale` is the rate
    of the matrices in units of `train.learning_rate`, that of AdamW; `hidden_decay` theirs, too. Matrices of one shape
    are orthogonalized together. A round over an n x m matrix, n <= m, takes 2 n^2 (n + 2 m) operations, whatever the
    batch: three of them over a layer of width D are as many as 14 D tokens take in its forward pass and 5 D in
    training, so that it repays where a step has many more tokens than that.
    """

    momentum: Rate = 0.95
    scale: Positive = 5.0
    rounds: Count = 3
    hidden_decay: NonNegative = 0.0

    def build(self, groups: list[Group], learning_rate: float) -> torch.optim.Optimizer:
        options: list[dict[str, Any]] = []
        for group in groups:
            hidden = [parameter for parameter in group.parameters if id(parameter) in group.hidden]
            others = [parameter for parameter in group.parameters if id(parameter) not in group.hidden]
            for parameters, orthogonal in ((hidden, True), (others, False)):
                if parameters:
                    decay = self.hidden_decay if orthogonal else self.decay_of(group)
                    part = Group(parameters, group.decays, group.share)
                    options.append(part.options(learning_rate, weight_decay=decay, orthogonal=orthogonal))
        return OrthogonalAdamW(options, self, learning_rate)


class OrthogonalAdamW(torch.optim.AdamW):
    """torch's AdamW, whose groups marked `orthogonal` are updated as `Muon` says."""

    def __init__(self, groups: list[dict[str, Any]], spec: Muon, learning_rate: float):
        super().__init__(groups, lr=learning_rate, betas=spec.betas, eps=spec.eps, fused=True)
        self.spec = spec

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            if group["orthogonal"]:
                by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        by_shape[parameter.shape].append(parameter)
                for parameters in by_shape.values():
                    self._turn(parameters, group)
        held = [(parameter, parameter.grad) for group in self.param_groups if group["orthogonal"]
                for parameter in group["params"]]  # fmt: skip
        for parameter, _ in held:
            parameter.grad = None  # AdamW passes over what has no gradient
        super().step()
        for parameter, gradient in held:
            parameter.grad = gradient

    def _turn(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Update matrices of one shape."""
        spec, momentum = self.spec, []
        for parameter in parameters:
            state, gradient = self.state[parameter], parameter.grad
            assert gradient is not None
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(gradient)
            state["momentum"].mul_(spec.momentum).add_(gradient)
            momentum.append(gradient + spec.momentum * state["momentum"])
        rows, columns = parameters[0].shape
        turns = orthogonalize(torch.stack(momentum), spec.rounds)
        size = group["lr"] * spec.scale * max(1.0, rows / columns) ** 0.5
        for parameter, turn in zip(parameters, turns, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(turn, alpha=size)


def orthogonalize(matrices: Tensor, rounds: int) -> Tensor:
    """About U V^T of each matrix U S V^T: [n, rows, columns] -> the same, by Newton-Schulz iterations."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.transpose(-1, -2) if tall else matrices
    x = x / (x.norm(dim=(-1, -2), keepdim=True) + 1e-12)
    a, b, c = COEFFICIENTS
    for _ in range(rounds):
        squared = x @ x.transpose(-1, -2)
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x.transpose(-1, -2) if tall else x
