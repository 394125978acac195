"""Soft attention in its three stages: a score for each pair, shares that sum to one, and a weighted sum.

    score_ij = F(query_i, key_j);   a_i = softmax_j(score_i);   c_i = sum_j a_ij value_j

What F is makes the parts of this file; the other two stages are the same for all (`attend`).
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.bounds import Count, Positive
from clozeworks.core.spec import Spec
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.linear import Linear


@dataclass(slots=True)
class Score(Spec):
    """Base of what tells how well a key answers a query."""

    @abstractmethod
    def build(self, width: int) -> "ScoreLayer": ...


class ScoreLayer(CustomInit):
    """Base of the scores' modules: how well a query goes with each key."""

    def keys(self, memory: Tensor) -> Tensor:
        """What is computed of the memory [N, S, D] once, whatever is asked of it."""
        return memory

    @abstractmethod
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """query [N, L, D], keys [N, S, E] -> [N, L, S]."""


def attend(score: ScoreLayer, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """query [N, L, D], keys [N, S, E], values [N, S, D], seen [N, S] bool -> contexts [N, L, D], weights [N, L, S].

    A query that sees nothing gets zeros.
    """
    scores = score(query, keys)
    weights = shares(scores, seen[:, None])
    return weights.to(values.dtype) @ values, weights


def shares(scores: Tensor, seen: Tensor) -> Tensor:
    """Softmax over what is seen; of rows that see nothing, zeros."""
    return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen


@dataclass(slots=True)
class Dot(Score):
    """score = query . key (Luong et al. 2015, 3.1), with `scaled` over sqrt(D) (Vaswani et al. 2017).

    [N, L, D], [N, S, D] -> [N, L, S]. O(L S D).
    """

    scaled: bool = False

    def build(self, width: int) -> "DotLayer":
        return DotLayer(width**-0.5 if self.scaled else 1.0)


class DotLayer(ScoreLayer):
    """Weights of `Dot`."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.scale * query @ keys.transpose(1, 2)


@dataclass(slots=True)
class Cosine(Score):
    """score = cos(query, key) / temperature (Graves et al. 2014, 3.3.1).

    A cosine is at most 1, so that without a temperature no key has more than e^2 times the share of another, and over
    twenty keys none more than 0.28. It begins at `temperature` and is learned, as log(1 / temperature), unless
    `learned` is false.

    [N, L, D], [N, S, D] -> [N, L, S]. O(L S D).
    """

    temperature: Positive = 0.1
    learned: bool = True

    def build(self, width: int) -> "CosineLayer":
        return CosineLayer(self)


class CosineLayer(ScoreLayer):
    """Weights of `Cosine`."""

    def __init__(self, spec: Cosine):
        super().__init__()
        self.start = -math.log(spec.temperature)
        self.sharpness = nn.Parameter(torch.tensor(self.start)) if spec.learned else None

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.constant_(parameter, self.start)

    def keys(self, memory: Tensor) -> Tensor:
        return F.normalize(memory, dim=-1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        sharpness = math.exp(self.start) if self.sharpness is None else self.sharpness.exp()
        return sharpness * (F.normalize(query, dim=-1) @ keys.transpose(1, 2))


@dataclass(slots=True)
class Additive(Score):
    """score = v . tanh(W_q query + W_k key + b): a perceptron with one hidden layer (Bahdanau et al. 2015, A.1.2).

    `width` hidden units; None: as many as the model is wide. O(L S width).

    [N, L, D], [N, S, D] -> [N, L, S]. O(L S D), and as many numbers in memory.
    """

    width: Count | None = None

    def build(self, width: int) -> "AdditiveLayer":
        return AdditiveLayer(width, self.width or width)


class AdditiveLayer(ScoreLayer):
    """Weights of `Additive`."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.query, self.key = Linear(width, inner), Linear(width, inner, bias=False)
        self.value = Linear(inner, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.value(torch.tanh(self.query(query)[:, :, None] + keys[:, None]))[..., 0]
