"""Multi-head attention."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, cat

from clozeworks.core.bounds import Count, Rate
from clozeworks.core.cache import Cache, KVCache
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.int8 import parts as int8
from clozeworks.nn.kernels.backends import attend, reach_of
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Bias, BiasLayer, Mixer, MixerLayer, fit_heads
from clozeworks.nn.positions import Rotary
from clozeworks.nn.window import Window

PROJECTIONS = ("query", "key", "value")
HEADS = {f"{name}.{kind}": 0 for name in PROJECTIONS for kind in ("weight", "bias")} | {"out.weight": 1}


@dataclass(slots=True)
class Attention(Mixer):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, 3.2).

    head_h = softmax(q_h k_h^T / sqrt(d) + bias) v_h;  out = W_o [head_1; ...; head_H] + b_o

    Shapes [B, L, D] -> [B, L, D], d = D / H, or `head_width`, with which H is any number (heads that were cut leave the
    others as wide as they are). Quadratic in length. Dropout on the weights needs them in memory and so takes the dense
    path. q, k and v are separate matrices: names and pruning stay simple, speed is the same. Without `affine`, q, k, v
    and out are products W x alone (Dai et al. 2019). With a `window`, keys beyond it are left out, and cost is linear
    in length (`windowed`). `rotary` turns q and k by their positions.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"self", "rows", "carry", "source"})
    scores: ClassVar[bool] = True
    whole: ClassVar[str | None] = None
    heads: Count
    dropout: Rate = 0.0
    bias: Bias | None = None
    affine: bool = True
    window: Window | None = None
    rotary: Rotary | None = None
    head_width: Count | None = None

    def check(self, where: str) -> None:
        if self.window is not None and self.bias is not None and "full" not in self.bias.honours:
            needed = f"{type(self.bias).__name__} says already how far back a token sees"
            raise RecipeError(f"{where}.window", "Window", needed, "use one of the two")

    @property
    def honours(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Mixer.honours if self.bias is None else self.bias.honours

    def fit(self, where: str, width: int) -> None:
        if self.head_width is None:
            fit_heads(where, self.heads, width)
        if self.bias is not None:
            self.bias.fit(f"{where}.bias", width)
        if self.window is not None:
            self.window.fit(f"{where}.window", self.heads)
        if self.rotary is not None:
            self.rotary.fit(f"{where}.rotary", self.size(width))

    def size(self, width: int) -> int:
        """Of the vectors of one head."""
        return self.head_width or width // self.heads

    def keep_heads(self, kept: Sequence[int], width: int) -> "Attention":
        window = None if self.window is None else self.window.keep_heads(kept)
        return dataclasses.replace(self, heads=len(kept), head_width=self.size(width), window=window)

    def build(self, width: int) -> "AttentionLayer":
        bias = self.bias.build(width, self.heads, self.size(width)) if self.bias else None
        return AttentionLayer(self, width, bias)


class AttentionLayer(MixerLayer):
    """Weights of `Attention`: query, key and value, each [H d, D], and out [D, H d]."""

    by_head: ClassVar[Mapping[str, int]] = HEADS

    def __init__(self, spec: Attention, width: int, bias: BiasLayer | None):
        super().__init__()
        self.heads, self.dropout, self.bias, self.window = spec.heads, spec.dropout, bias, spec.window
        self.rotary = spec.rotary
        inner = spec.heads * spec.size(width)
        self.query = Linear(width, inner, bias=spec.affine)
        self.key = Linear(width, inner, bias=spec.affine)
        self.value = Linear(width, inner, bias=spec.affine)
        self.out = Linear(inner, width, bias=spec.affine)

    def extend(self, past: Cache | None, x: Tensor) -> KVCache:
        k, v = self._split(self.key(x)), self._split(self.value(x))
        if past is None:
            return KVCache(k, v)
        assert isinstance(past, KVCache)
        return KVCache(cat([past.k, k], 2), cat([past.v, v], 2))

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, KVCache | None]:
        if memory is None and self.bias is None and self.window is None and self.rotary is None and context.key is None:
            parts = self.query, self.key, self.value, self.out
            if (mixed := int8.attention(parts, query, self.heads, context)) is not None:
                return mixed, None
        rows = query if memory is None else memory
        keys = self.extend(None, rows) if isinstance(rows, Tensor) else rows
        assert isinstance(keys, KVCache)
        q, seen = self._split(self.query(query)), keys
        if self.rotary is not None:  # what is carried stays as it was projected: its positions are those of the context
            q = self.rotary.rotate(q, context.query.position, context, "query")
            seen = KVCache(self.rotary.rotate(keys.k, context.memory.position, context, "memory"), keys.v)
        mixed = attend(q, seen, context, self.bias, self.dropout, self.window)
        out = self.out(context.pick(mixed.transpose(1, 2).flatten(2)))
        return out, keys if context.carry else None

    def reach(self, context: Context) -> int | None:
        return reach_of(self.bias, context)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
