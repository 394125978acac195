"""Convolution as a mixer: each token looks at its neighbours."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, cat, nn
from torch.nn import functional as F

from clozeworks.core.bounds import Count, Rate
from clozeworks.core.cache import Cache, ConvCache
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.convolve import blocked, dense
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Mixer, MixerLayer, fit_heads

NOBODY = -3  # the document of what lies before and behind a row


@dataclass(slots=True)
class LightConv(Mixer):
    """Lightweight and dynamic convolution (Wu et al. 2019), as a branch with its projections (Wu et al. 2020, 3).

    x' = GLU(W_1 x + b_1);  out_i = W_2 [sum_k a_hk x'_{i + k - left, h}]_h + b_2,  a_h = softmax over the kernel

    The channels are in `groups`, each with one kernel a_h: a parameter, or where `dynamic`, predicted by each token,
    softmax(W_h x'_i). Under full visibility the kernel lies around its token, left = (K - 1) // 2; under causal
    visibility before it, left = K - 1. What a token may not see counts as zero, and the kernel's other weights stay as
    they are. Without `gate`, x' = W_1 x + b_1. `dropout` drops weights of the kernel after the softmax: where it is a
    parameter, the same ones all along a row.

    Shapes [B, L, D] -> [B, L, D]. O(L (D^2 + K D)). Departure: the authors set padding to zero before W_1, so that
    b_1 leaks from it into its neighbours; here it is zero after W_1, and padded is as unpadded.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"full", "causal"})
    groups: Count
    kernel: Count
    dropout: Rate = 0.0
    dynamic: bool = False
    gate: bool = True

    def fit(self, where: str, width: int) -> None:
        fit_heads(where, self.groups, width, "groups")

    def build(self, width: int) -> "LightConvLayer":
        kernel = Predicted if self.dynamic else Fixed
        return LightConvLayer(self, width, kernel(width, self.groups, self.kernel, self.dropout))


class LightConvLayer(MixerLayer):
    """Weights of `LightConv`: the way in, kernels or what predicts them, the way out."""

    def __init__(self, spec: LightConv, width: int, weights: "Fixed | Predicted"):
        super().__init__()
        self.groups, self.kernel, self.gate = spec.groups, spec.kernel, spec.gate
        self.inner = Linear(width, 2 * width if spec.gate else width)
        self.weights = weights
        self.out = Linear(width, width)

    def extend(self, past: Cache | None, x: Tensor) -> ConvCache:
        x = self.inner(x)
        x = F.glu(x) if self.gate else x
        if past is None:
            return ConvCache(x)
        assert isinstance(past, ConvCache)
        return ConvCache(cat([past.tail(self.kernel - 1).last, x], 1))

    def forward(
        self, query: Tensor, memory: Tensor | Cache | None, context: Context
    ) -> tuple[Tensor, ConvCache | None]:
        """[B, L, D] -> [B, L, D], each document by itself."""
        rows = query if memory is None else memory
        tail = self.extend(None, rows) if isinstance(rows, Tensor) else rows
        assert isinstance(tail, ConvCache)
        x, length = tail.last, query.shape[1]
        begin, left = 0 if memory is None else self._begin(x, context), self._left(context)
        around = (left - begin, begin + length + self.kernel - 1 - left - x.shape[1])  # below 0: so many too many
        weights = self.weights(x[:, begin : begin + length], context.key)
        seen = self._seen(x, around, left, context)
        if seen is not None:
            weights = weights * seen[:, :, None]
        x = F.pad(x, (0, 0, *around)).unflatten(-1, (self.groups, -1))
        convolve = dense if context.backend == "dense" else blocked
        mixed = convolve(x, weights.to(x.dtype)).flatten(2)
        return self.out(context.pick(mixed)), tail if context.carry else None

    def _left(self, context: Context) -> int:
        """Places of the kernel before the token itself."""
        if context.kind not in LightConv.honours:
            raise ValueError(f"a convolution cannot hide what {context.kind} visibility hides")
        return self.kernel - 1 if context.kind == "causal" else (self.kernel - 1) // 2

    def _begin(self, x: Tensor, context: Context) -> int:
        """Where among the rows the queries begin; of older ones there may be fewer than are remembered elsewhere."""
        if context.offset is None:
            raise ValueError("a convolution needs the queries among the rows, in their order")
        return context.offset - context.memory.document.shape[1] + x.shape[1]

    def _seen(self, x: Tensor, around: tuple[int, int], left: int, context: Context) -> Tensor | None:
        """[B, L, K] bool: which places of the kernel the token sees; None: all that are there."""
        if context.layout is not None and context.layout.plain:
            return None

        def compare() -> Tensor:
            document = context.memory.document[:, context.memory.document.shape[1] - x.shape[1] :]
            near = F.pad(document, around, value=NOBODY).unfold(1, self.kernel, 1)
            return near == context.query.document[:, :, None]

        return context.once(f"near.{self.kernel}.{left}.{x.shape[1]}", compare)


class Fixed(CustomInit):
    """One kernel for all places."""

    def __init__(self, width: int, groups: int, kernel: int, rate: float):
        super().__init__()
        self.rate = rate
        self.kernel = nn.Parameter(torch.zeros(groups, kernel))

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        bound = (6 / (parameter.shape[1] + parameter.numel())) ** 0.5  # as the authors have it
        nn.init.uniform_(parameter, -bound, bound, generator)

    def forward(self, x: Tensor, key: DropoutKey | None) -> Tensor:
        """x [B, L, D] -> [B, L, H, K]."""
        weights = dropout(self.kernel.softmax(-1).expand(len(x), -1, -1), self.rate, key)
        return weights[:, None].expand(-1, x.shape[1], -1, -1)


class Predicted(nn.Module):
    """Each place says its own kernel."""

    def __init__(self, width: int, groups: int, kernel: int, rate: float):
        super().__init__()
        self.groups, self.rate = groups, rate
        self.predict = Linear(width, groups * kernel, bias=False)

    def forward(self, x: Tensor, key: DropoutKey | None) -> Tensor:
        """x [B, L, D] -> [B, L, H, K]."""
        weights = self.predict(x).unflatten(-1, (self.groups, -1)).softmax(-1)
        return dropout(weights, self.rate, key)
