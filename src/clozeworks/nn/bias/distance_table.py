"""A learned vector for each distance to a token before."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count
from clozeworks.core.context import Context
from clozeworks.nn.bias.distance import distances, positive, span, spread
from clozeworks.nn.mixer import Apart, Bias, BiasLayer


@dataclass(slots=True)
class DistanceTable(Bias):
    """Keys 1 to `limit` places before the query, each with a vector of its distance (Sukhbaatar et al. 2019, 2).

    score_ij = q_i . (k_j + p_{i - j}) / sqrt(d),  1 <= i - j <= limit

    The token itself is not among them: the first of a text sees nothing, and gets nothing. One table [limit, d] serves
    all heads, and with `Share.bias` all layers, as in the published code. O(L (limit + block) d) time.

    q [B, H, L, d] -> q, and [B, H, L, M] to add. O(L M d), as much as the product with the keys.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    common: ClassVar[tuple[str, ...]] = ("table",)
    nearest: ClassVar[int] = 1
    limit: Count

    def build(self, width: int, heads: int, head_width: int) -> "DistanceTableLayer":
        return DistanceTableLayer(self.limit, heads, head_width)


class DistanceTableLayer(BiasLayer):
    """Weights of `DistanceTable`: one vector a distance."""

    def __init__(self, limit: int, heads: int, head_width: int):
        super().__init__()
        self.limit, self.heads = limit, heads
        self.table = nn.Parameter(torch.zeros(limit, head_width))

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        """N(0, 1), as in the published code: a vector of the size of a query tells near from far from the first."""
        nn.init.normal_(parameter, 0.0, 1.0, generator)

    def furthest(self) -> int:
        return self.limit

    def allowed(self, context: Context) -> Tensor:
        return context.once(f"past.{self.limit}", lambda: self._past(context))

    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        first, last, index = context.once("distances", lambda: span(context))
        return q, spread(self._found(q, first, last, context), index, context, scale), self.allowed(context)

    def apart(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart] | None:
        if context.offset is None:
            return None
        first, last, _ = context.once("distances", lambda: span(context))
        return q, self._found(q, first, last, context)

    def _found(self, q: Tensor, first: int, last: int, context: Context) -> Apart:
        """A row for each distance; for those that are not allowed, any."""
        row = (distances(first, last, context)[0] - 1).clamp(0, self.limit - 1)
        table = self.table.to(q.dtype).index_select(0, row)
        return Apart(q, table.expand(1, self.heads, -1, -1))

    def _past(self, context: Context) -> Tensor:
        distance = positive(context)
        return (distance >= 1) & (distance <= self.limit)
