"""Which of an encoder's layers a task reads."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Hidden
from clozeworks.core.bounds import Count
from clozeworks.core.spec import Spec
from clozeworks.nn.init import CustomInit

EPS = 1e-12


@dataclass(slots=True)
class Reading(Spec):
    """The last layer."""

    layers: ClassVar[bool] = False  # it reads more than the last one

    def width(self, width: int) -> int:
        """Of what it gives, for layers of this width."""
        return width

    def build(self) -> "ReadingLayer":
        return ReadingLayer()


class ReadingLayer(nn.Module):
    """The hidden states that a task reads: the last ones."""

    def forward(self, hidden: Hidden) -> Tensor:
        return hidden.last


@dataclass(slots=True)
class LastLayers(Reading):
    """The `last` so many layers, made one."""

    layers: ClassVar[bool] = True
    last: Count = 4

    @abstractmethod
    def build(self) -> "ReadingLayer": ...


class LastLayersLayer(ReadingLayer):
    """The last few layers, added up or side by side."""

    def __init__(self, last: int, join: bool):
        super().__init__()
        self.last, self.join = last, join

    def forward(self, hidden: Hidden) -> Tensor:
        layers = hidden.layers[-self.last :]
        return torch.cat(layers, -1) if self.join else torch.stack(layers).sum(0)


@dataclass(slots=True)
class SumLayers(LastLayers):
    """The sum of the last few layers (Devlin et al. 2018, 5.3)."""

    def build(self) -> "ReadingLayer":
        return LastLayersLayer(self.last, join=False)


@dataclass(slots=True)
class JoinLayers(LastLayers):
    """The last few layers side by side (Devlin et al. 2018, 5.3: four of them are the best features)."""

    def width(self, width: int) -> int:
        return self.last * width

    def build(self) -> "ReadingLayer":
        return LastLayersLayer(self.last, join=True)


@dataclass(slots=True)
class ScalarMix(Reading):
    """gamma sum_l softmax(w)_l h_l over all layers, the embedding too (Peters et al. 2018, equation 1).

    `depth` is the number of blocks: there is one weight more. They begin equal, gamma as 1. With `norm` each layer is
    first brought to mean 0 and variance 1 (their section 3.2), over all tokens and units of the batch as the published
    code has it: what is read of a text then depends on the texts beside it.
    """

    layers: ClassVar[bool] = True
    depth: Count
    norm: bool = False

    def build(self) -> "ReadingLayer":
        return ScalarMixLayer(self.depth + 1, self.norm)


class ScalarMixLayer(ReadingLayer, CustomInit):
    """The learned mean of all layers."""

    def __init__(self, layers: int, norm: bool = False):
        super().__init__()
        self.norm = norm
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.constant_(parameter, 1.0 if name == "gamma" else 0.0)

    def forward(self, hidden: Hidden) -> Tensor:
        layers = torch.stack(hidden.layers)
        if self.norm:
            layers = _normal(layers, hidden.real)
        return self.gamma * torch.einsum("l,lbtd->btd", self.weights.softmax(0), layers)


def _normal(layers: Tensor, real: Tensor | None) -> Tensor:
    """[layers, B, L, D] each with mean 0 and variance 1 over all that is no padding."""
    known = torch.ones_like(layers[0, :, :, :1]) if real is None else real[..., None].to(layers.dtype)
    count = known.sum() * layers.shape[-1]
    mean = (layers * known).sum((1, 2, 3), keepdim=True) / count
    variance = ((layers - mean) * known).square().sum((1, 2, 3), keepdim=True) / count
    return (layers - mean) / (variance + EPS).sqrt()
