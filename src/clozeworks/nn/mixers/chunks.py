"""Attention within a chunk and the one before it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.bounds import Count, Natural, Rate
from clozeworks.core.cache import Cache
from clozeworks.core.context import Context
from clozeworks.nn.kernels import ring
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Mixer, MixerLayer, fit_heads
from clozeworks.nn.mixers.attention import HEADS


@dataclass(slots=True)
class LocalAttention(Mixer):
    """Attention of each chunk of C tokens to itself, `before` chunks before it and `after` after it (the local layers
    in the code of Kitaev et al. 2020).

    head_h = softmax(q_h k_h^T / sqrt(d)) v_h over what is near and visible;   out = W_o [head_1; ...; head_H]

    Shapes [B, L, D] -> [B, L, D]; H heads of d = `head_width`, by default D / H. O(L C d) time, O(L d) memory. Chunks
    are cut from the row; the first looks back at the last, as in the authors' code, where visibility allows. Rows of C
    tokens or fewer are one chunk: all pairs. Nothing is seen of another document; in a row longer than C, how near a
    token of the same document is depends on where it stands in the row.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"full", "causal", "prefix"})
    untraceable: ClassVar[str | None] = "how many chunks a row is cut into depends on its length"
    takes: ClassVar[frozenset[str]] = frozenset({"self"})
    whole: ClassVar[str | None] = None
    heads: Count
    head_width: Count | None = None
    chunk: Count = 64
    before: Natural = 1
    after: Natural = 0
    dropout: Rate = 0.0

    def fit(self, where: str, width: int) -> None:
        if self.head_width is None:
            fit_heads(where, self.heads, width)

    def keep_heads(self, kept: Sequence[int], width: int) -> "LocalAttention":
        return dataclasses.replace(self, heads=len(kept), head_width=self.head_width or width // self.heads)

    def build(self, width: int) -> "LocalAttentionLayer":
        return LocalAttentionLayer(self, width)


class LocalAttentionLayer(MixerLayer):
    """Weights of `LocalAttention`: query, key, value and out."""

    carries: ClassVar[bool] = False
    by_head: ClassVar[Mapping[str, int]] = HEADS

    def __init__(self, spec: LocalAttention, width: int):
        super().__init__()
        self.heads, self.chunk, self.before, self.after = spec.heads, spec.chunk, spec.before, spec.after
        self.dropout = spec.dropout
        inner = spec.heads * (spec.head_width or width // spec.heads)
        self.query, self.key, self.value = (Linear(width, inner, bias=False) for _ in range(3))
        self.out = Linear(inner, width, bias=False)

    def extend(self, past: Cache | None, x: Tensor) -> Cache:
        raise NotImplementedError("chunks are cut from whole rows: nothing can be projected ahead")

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, None]:
        assert memory is None
        q, k, v = (layer(query).unflatten(-1, (self.heads, -1)) for layer in (self.query, self.key, self.value))
        mixed = ring.attend(q, k / k.shape[-1] ** 0.5, v, self._ring(q, context), context, self.dropout)
        return self.out(context.pick(mixed.flatten(2))), None

    def _ring(self, q: Tensor, context: Context) -> ring.Ring:
        count, length = q.shape[:2]
        if length <= self.chunk:
            return context.once(f"one.{self.heads}", lambda: ring.whole(count, self.heads, length, context))
        whole = -(-length // self.chunk) * self.chunk
        order = torch.arange(whole, device=q.device).expand(count, self.heads, 1, whole)
        name = f"chunks.{self.heads}.{self.chunk}.{self.before}.{self.after}"
        return context.once(name, lambda: ring.Ring.make(order, self.chunk, self.before, self.after, context))
