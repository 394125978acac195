"""A learned vector for each distance, beside the key and beside the value."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count
from clozeworks.core.context import Context
from clozeworks.nn.mixer import Bias, BiasLayer


@dataclass(slots=True)
class Shaw(Bias):
    """Keys and values that know how far away they are, up to a distance (Shaw et al. 2018, 3.1 and 3.2).

    score_ij = q_i . (k_j + a_c) / sqrt(d),  out_i = sum_j w_ij (v_j + b_c),  c = clip(j - i, -reach, reach)

    The two tables have 2 reach + 1 rows of d numbers and serve all heads. Of the four products of `Relative` the two
    with the query are here. O(L reach d) products, and a lookup for each pair; the values want the weights themselves,
    so that attention takes the dense path.

    q [B, H, L, d] -> q, and [B, H, L, M] to add. The values take the dense path: O(L M d) time, O(L M) memory.
    """

    reach: Count = 16

    def build(self, width: int, heads: int, head_width: int) -> "ShawLayer":
        return ShawLayer(self.reach, head_width)


class ShawLayer(BiasLayer):
    """Weights of `Shaw`: vectors of clipped distances, for keys and for values."""

    adds_values: ClassVar[bool] = True

    def __init__(self, reach: int, head_width: int):
        super().__init__()
        self.reach = reach
        self.keys = nn.Parameter(torch.zeros(2 * reach + 1, head_width))
        self.values = nn.Parameter(torch.zeros(2 * reach + 1, head_width))

    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor, None]:
        scores = q * scale @ self.keys.to(q.dtype).t()
        return q, scores.gather(-1, self._row(context, q)), None

    def value(self, weights: Tensor, context: Context) -> Tensor:
        """The weights of all keys at one distance have one vector: they are summed first."""
        summed = weights.new_zeros(*weights.shape[:-1], len(self.values))
        return summed.scatter_add(-1, self._row(context, weights), weights) @ self.values

    def _row(self, context: Context, like: Tensor) -> Tensor:
        """[B, H, L, M]: which vector each pair has."""
        row = context.once(f"row.{self.reach}", lambda: self._clipped(context))
        return row.expand(like.shape[0], like.shape[1], -1, -1)

    def _clipped(self, context: Context) -> Tensor:
        distance = context.memory.position[:, None, :] - context.query.position[:, :, None]
        return (distance.clamp(-self.reach, self.reach) + self.reach)[:, None]
