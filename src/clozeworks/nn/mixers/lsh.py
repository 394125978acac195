"""Attention among tokens that point the same way."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.bounds import Count, Natural, Rate, Seed
from clozeworks.core.cache import Cache
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.kernels import hashing, ring
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Mixer, MixerLayer, fit_heads


@dataclass(slots=True)
class LSH(Mixer):
    """Attention among the vectors that locality-sensitive hashing puts near each other (Kitaev et al. 2020, 2).

    q = W_q x, k = q / |q|: keys are queries. In each of `rounds`, q is turned at random and belongs to the bucket of
    the axis it is nearest to; tokens are sorted by bucket, then position, and cut into chunks of C; a chunk looks at
    itself, `before` chunks before it and `after` after it, whatever their buckets, around the end into the next round.

    w_i = softmax over the near, visible j, as often as they are near, of q_i . k_j;   out = W_o [w v; ...]

    A token looks at itself only if it sees nothing else (score -1e5). Rows of C tokens or fewer are one chunk without
    hashing: all pairs. Shapes [B, L, D] -> [B, L, D]; H heads of d = `head_width`, by default D / H. Time O(L log L)
    where buckets follow the length (`buckets` = None), memory O(L).

    Turns are drawn anew for each step of training, from `seed` otherwise, so that evaluation repeats. No weight depends
    on the rounds: a model may be read with more than it was trained with. Visibility holds for every pair; which of the
    visible are near depends on the whole row, since all its tokens are sorted: a row that is packed or padded
    otherwise, and longer than C, gives other vectors, and a later token may push an earlier one out of sight. Documents
    are kept together. As in the authors' code, scores are not divided by sqrt(d) and neighbours in other buckets count;
    unlike theirs, the weights of rounds are exact where a token sees only itself.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"full", "causal", "prefix"})
    untraceable: ClassVar[str | None] = "which tokens meet is decided by sorting their hashes"
    takes: ClassVar[frozenset[str]] = frozenset({"self"})
    whole: ClassVar[str | None] = "turns are drawn for all its heads at once, and others would see other tokens"
    heads: Count
    head_width: Count | None = None
    chunk: Count = 64
    rounds: Count = 1
    buckets: Count | tuple[Count, ...] | None = None
    before: Natural = 1
    after: Natural = 0
    dropout: Rate = 0.0
    seed: Seed = 0

    def check(self, where: str) -> None:
        factors = self.buckets if isinstance(self.buckets, tuple) else (self.buckets or 2,)
        if not factors or any(factor < 2 or factor % 2 for factor in factors):
            given = list(self.buckets) if isinstance(self.buckets, tuple) else self.buckets
            raise RecipeError(f"{where}.buckets", given, "even numbers are needed", "None follows the length")

    def fit(self, where: str, width: int) -> None:
        if self.head_width is None:
            fit_heads(where, self.heads, width)

    def build(self, width: int) -> "LSHLayer":
        return LSHLayer(self, width)


class LSHLayer(MixerLayer):
    """Weights of `LSH`: queries that are keys too, values, and out."""

    carries: ClassVar[bool] = False

    def __init__(self, spec: LSH, width: int):
        super().__init__()
        self.heads, self.chunk, self.rounds, self.buckets = spec.heads, spec.chunk, spec.rounds, spec.buckets
        self.before, self.after, self.dropout, self.seed = spec.before, spec.after, spec.dropout, spec.seed
        inner = spec.heads * (spec.head_width or width // spec.heads)
        self.query_key = Linear(width, inner, bias=False)
        self.value = Linear(width, inner, bias=False)
        self.out = Linear(inner, width, bias=False)

    def extend(self, past: Cache | None, x: Tensor) -> Cache:
        raise NotImplementedError("tokens are sorted together: nothing can be projected ahead")

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, None]:
        assert memory is None
        q, v = (layer(query).unflatten(-1, (self.heads, -1)) for layer in (self.query_key, self.value))
        mixed = ring.attend(q, None, v, self._ring(q, context), context, self.dropout)
        return self.out(context.pick(mixed.flatten(2))), None

    def _ring(self, q: Tensor, context: Context) -> ring.Ring:
        count, length = q.shape[:2]
        if length <= self.chunk:
            return context.once(f"one.{self.heads}", lambda: ring.whole(count, self.heads, length, context))
        order = context.decide(self, lambda: self._order(q.detach(), context))
        return ring.Ring.make(order, self.chunk, self.before, self.after, context)

    @torch.no_grad()
    def _order(self, q: Tensor, context: Context) -> Tensor:
        """[B, H, rounds, L to a multiple of C]: the choice that a second computation must repeat."""
        length, (heads, size) = q.shape[1], q.shape[2:]
        whole = -(-length // self.chunk) * self.chunk
        factors = hashing.sizes(self.buckets, whole, self.chunk)
        turn = hashing.rotations((heads, size, self.rounds, sum(factors) // 2), context.key, self.seed, q)
        buckets = hashing.hashed(q, turn, factors)
        total = 1
        for factor in factors:
            total *= factor
        return hashing.ordered(buckets, total, whole, context.query, context.layout)
