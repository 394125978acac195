"""Distances between tokens, with vectors for query, key and distance of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, Rate
from clozeworks.core.context import Context
from clozeworks.core.dropout import dropout
from clozeworks.nn.bias.distance import distances, span, spread
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Apart, Bias, BiasLayer
from clozeworks.nn.positions import fit_waves, sinusoids


@dataclass(slots=True)
class Relative(Bias):
    """Attention to a key for what it holds and for how far away it is (Dai et al. 2019, 3.3; Yang et al. 2019, 2.2).

    score_ij = [(q_i + u) . k_j + (q_i + v) . W_r R(i - j) + (q_i + w) . s_{same or other segment}] / sqrt(d)

    R(i - j) = [sin | cos] of the distance, which is positive for keys in the past and which `clamp` bounds; W_r has no
    bias. The last term is there with `segments`: s_0 for a key of the query's own segment, s_1 for one of another, and
    what a memory holds counts as segment 0. `dropout` is on R, the same for all rows and layers of a step. Positions
    appear only as distances, so that a row may be read after any other. Each layer has u, v and w of its own unless
    `Share.bias` says otherwise.

    q [B, H, L, d] -> q + u, and [B, H, L, M] to add. O(L M d) time, which is as much as the product with the keys.
    """

    common: ClassVar[tuple[str, ...]] = ("u", "v", "w")
    clamp: Count | None = None
    segments: bool = False
    dropout: Rate = 0.0

    def fit(self, where: str, width: int) -> None:
        fit_waves(where, type(self).__name__, width)

    def build(self, width: int, heads: int, head_width: int) -> "RelativeLayer":
        return RelativeLayer(self, width, heads, head_width)


class RelativeLayer(BiasLayer):
    """Weights of `Relative`: u, v and w of each head, and W_r."""

    by_head: ClassVar[Mapping[str, int]] = {"u": 0, "v": 0, "w": 0, "segment": 1, "position.weight": 0}

    def __init__(self, spec: Relative, width: int, heads: int, head_width: int):
        super().__init__()
        self.clamp, self.dropout, self.heads = spec.clamp, spec.dropout, heads
        self.u = nn.Parameter(torch.zeros(heads, head_width))
        self.v = nn.Parameter(torch.zeros(heads, head_width))
        self.position = Linear(width, heads * head_width, bias=False)
        self.w = nn.Parameter(torch.zeros(heads, head_width)) if spec.segments else None
        self.segment = nn.Parameter(torch.zeros(2, heads, head_width)) if spec.segments else None

    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor, None]:
        q, apart, index = self._parts(q, context, scale)
        added = spread(apart, index, context, scale)
        return q, added if apart.added is None else added + apart.added, None

    def apart(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart] | None:
        return None if context.offset is None else self._parts(q, context, scale)[:2]

    def _parts(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart, Tensor | None]:
        """The q to use, what is added, and where each pair finds its distance in the table if not by shifting."""
        first, last, index = context.once("distances", lambda: span(context))
        name = f"distances.{self.clamp}.{self.dropout}"
        project = lambda: self.position(context.once(name, lambda: self._table(first, last, context)))  # noqa: E731
        table = project() if context.key else context.lasting(self, (first, last, context.backward is None), project)
        table = table.unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # [1 or 2, H, R, d]
        if len(table) == 2 and context.backward is not None:
            table = table[context.backward.long()]
        added = None
        if self.w is not None and self.segment is not None:
            own, other = (_plus(q, self.w) * scale @ self.segment.to(q.dtype).permute(1, 2, 0)).split(1, -1)
            added = torch.where(context.once("same_segment", lambda: same_segment(context)), own, other)
        return _plus(q, self.u), Apart(_plus(q, self.v), table, added), index

    def _table(self, first: int, last: int, context: Context) -> Tensor:
        """[1 or 2, R, D]: R of the distances from `first` down to `last`; of these with the other sign where rows are
        read backwards."""
        distance = distances(first, last, context)
        key = None if context.key is None else context.key.common("distances")
        if key is not None and self.dropout:  # counted from the longest there can be: whatever distances occur here
            place = context.memory.position.shape[1] - 1 - distance[0]
            place = torch.cat([place + side * len(place) for side in range(len(distance))])
            key = key.tokens(place, 1 << 40)
        if self.clamp is not None:
            distance = distance.clamp(-self.clamp, self.clamp)
        waves = sinusoids(distance, self.position.in_features).to(self.position.weight.dtype)
        return dropout(waves, self.dropout, key)


def same_segment(context: Context) -> Tensor:
    """[B, 1, L, M] bool. Rows of memory that have no segment count as segment 0, and so do those of a batch without."""
    query, memory = context.query.segment, context.memory.segment
    if query is None:
        query = torch.zeros_like(context.query.position)
    if memory is None:
        memory = torch.zeros_like(context.memory.position)
        if context.offset is not None:
            memory[:, context.offset : context.offset + query.shape[1]] = query
    return (query[:, :, None] == memory[:, None, :])[:, None]


def _plus(q: Tensor, vector: Tensor) -> Tensor:
    return q + vector[:, None].to(q.dtype)
