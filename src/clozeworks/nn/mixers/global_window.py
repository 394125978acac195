"""Attention that is near for most tokens and reaches everywhere for a few."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clozeworks.core.bounds import Count, Rate
from clozeworks.core.cache import Cache, KVCache
from clozeworks.core.context import Context
from clozeworks.nn.kernels.backends import attend, dense, masked
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.kernels.windowed import counted, fits, windowed
from clozeworks.nn.mixer import Mixer, MixerLayer, fit_heads
from clozeworks.nn.mixers.attention import HEADS, PROJECTIONS
from clozeworks.nn.window import Window


@dataclass(slots=True)
class GlobalWindow(Mixer):
    """Sliding-window attention with global tokens (Beltagy et al. 2020, 3.1).

    A token looks at its window and at every marked token (`TokenInfo.marked`, a decision of the task), in one softmax;
    a marked token looks at everything it may see, with projections of its own for query, key and value. Nothing is seen
    that visibility hides. Without marked tokens it is `Attention` with a window.

    Shapes [B, L, D] -> [B, L, D]. O(L (window + marked) d) time and memory. Of the projections of marked tokens those
    of key and value are made for all rows, that of the query for the marked ones alone.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"self", "rows"})
    whole: ClassVar[str | None] = None
    heads: Count
    window: Window
    dropout: Rate = 0.0
    head_width: Count | None = None  # None: D / H

    def fit(self, where: str, width: int) -> None:
        if self.head_width is None:
            fit_heads(where, self.heads, width)
        self.window.fit(f"{where}.window", self.heads)

    def keep_heads(self, kept: Sequence[int], width: int) -> "GlobalWindow":
        size, window = self.head_width or width // self.heads, self.window.keep_heads(kept)
        return dataclasses.replace(self, heads=len(kept), head_width=size, window=window)

    def build(self, width: int) -> "GlobalWindowLayer":
        return GlobalWindowLayer(self, width)


class GlobalWindowLayer(MixerLayer):
    """Weights of `GlobalWindow`: two sets of query, key and value, one for tokens that see all, and out."""

    carries: ClassVar[bool] = False
    by_head: ClassVar[Mapping[str, int]] = HEADS | {
        f"{name}_global.{kind}": 0 for name in PROJECTIONS for kind in ("weight", "bias")
    }

    def __init__(self, spec: GlobalWindow, width: int):
        super().__init__()
        inner = spec.heads * (spec.head_width or width // spec.heads)
        self.heads, self.window, self.dropout = spec.heads, spec.window, spec.dropout
        self.query, self.key, self.value = (Linear(width, inner) for _ in range(3))
        self.query_global, self.key_global, self.value_global = (Linear(width, inner) for _ in range(3))
        self.out = Linear(inner, width)

    def extend(self, past: Cache | None, x: Tensor) -> KVCache:
        raise NotImplementedError("marked tokens have keys of their own: rows are projected anew each time")

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, None]:
        rows = query if memory is None else memory
        assert isinstance(rows, Tensor)
        marks = context.most_marked > 0 and context.memory.marked is not None
        mixed = self._near(query, rows, context.at("near"), marks)
        if marks and context.query.marked is not None:
            defined = context.capture is not None or context.backend == "dense"
            replace = self._defined if defined else self._replaced
            mixed = replace(query, rows, context.at("far").replace(capture=None), context.query.marked, mixed)
        return self.out(context.pick(mixed.transpose(1, 2).flatten(2))), None

    def _near(self, query: Tensor, rows: Tensor, context: Context, marks: bool) -> Tensor:
        """[B, H, L, d]: every token's window, and the marked ones."""
        q, keys = self._split(self.query(query)), KVCache(self._split(self.key(rows)), self._split(self.value(rows)))
        if q.is_meta and context.backend == "dense":
            return counted(q, keys, context, self.window)
        if fits(context, self.window):
            return windowed(q, keys, context, self.window, self.dropout, marks)
        near = context.once(f"near.{self.window}", lambda: self.window.near(context))
        if marks and context.memory.marked is not None:
            near = near | context.memory.marked[:, None, None, :]
        return masked(q, keys, context, self.dropout, near)

    def _defined(self, query: Tensor, rows: Tensor, context: Context, asked: Tensor, mixed: Tensor) -> Tensor:
        """The definition of what marked tokens see: everyone asks everything, those that are marked take it."""
        keys = KVCache(self._split(self.key_global(rows)), self._split(self.value_global(rows)))
        far = dense(self._split(self.query_global(query)), keys, context, None, self.dropout)
        return far.where(asked[:, None, :, None], mixed)

    def _replaced(self, query: Tensor, rows: Tensor, context: Context, asked: Tensor, mixed: Tensor) -> Tensor:
        """The same, where only the marked ones ask: G of them a row, where a row has fewer some others too."""
        places, real = context.once("marked", lambda: _marked(asked, context.most_marked))
        some = query.gather(1, places[..., None].expand(-1, -1, query.shape[-1]))
        view = context.replace(
            query=context.query.take(places), kind="order", offset=None, layout=None, scratch=context.once("far", dict),
        )  # fmt: skip
        keys = KVCache(self._split(self.key_global(rows)), self._split(self.value_global(rows)))
        far = attend(self._split(self.query_global(some)), keys, view, None, self.dropout)
        index = places[:, None, :, None].expand_as(far)
        return mixed.scatter(2, index, far.where(real[:, None, :, None], mixed.gather(2, index)))

    def _split(self, x_BLD: Tensor) -> Tensor:
        return x_BLD.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _marked(asked: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """[B, G] the marked places of each row before some others, all different, and which of these are marked."""
    places = asked.byte().sort(dim=1, descending=True, stable=True).indices[:, :most]
    return places, asked.gather(1, places)
