"""Attention within a window, in pieces of a few queries: linear in length, in time and memory, forward and backward.

A piece is some neighbouring queries of a row and the keys that the windows of these reach, with the marked tokens, if
there are any, as further keys:

    p = softmax(q k^T / sqrt(d) + hidden),  out = (p * keep / (1 - rate)) v

Its scores stay in cache and are forgotten at once: on the way back they are computed again from q, k and v, which is
all that is kept, with one bit a weight under dropout. `hidden` is 0 or -inf: the corners of the band, the same for
nearly all pieces; where documents meet, or where visibility has an order of its own, those pieces have one each, made
once a pass. No pair of distant tokens is looked at. Where no token sees a later one, no later one is computed.

Heads of one dilation g go together, and the tokens of one residue modulo g are a row with a window of steps of 1: the
same memory with another stride. Equals the dense path; dropout drops other weights (other shapes), at the same rate.
"""

import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, numbers
from clozeworks.core.token_info import TokenInfo, visible
from clozeworks.nn.kernels.drops import Drops
from clozeworks.nn.window import Window

QUERIES = 64  # of a piece; more compute more of what lies beyond the band, fewer make the products slow (measured)
SHORT = 64  # a row that is longer than the keys of a piece by no more is as fast with a mask (measured)
BORDER = "CLOZEWORKS_WINDOW_BORDER"  # in the environment: what was measured on this machine instead
SCORES = 1 << 18  # of a piece: more do not stay in a core's cache


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries that are computed together, and the keys that they may see."""

    row: int
    heads: slice
    queries: slice
    keys: slice
    hidden: Tensor  # [Q, K or K + G] 0 and -inf
    dead: Tensor | None = None  # [Q, 1] bool: queries that see nothing; None: there are none


@dataclass(frozen=True, slots=True)
class Plan:
    """The pieces of a batch, and the marked tokens that every piece sees."""

    pieces: tuple[Piece, ...]
    far: tuple[Tensor, ...] | None = None  # [G] of each row: the marked tokens, which all its pieces have as keys


def fits(context: Context, window: Window, biased: bool = False) -> bool:
    """Whether distance in the rows is distance in the text, nobody asks for the weights, and it is worth while."""
    regular = context.offset is not None and context.backward is None and not torch.compiler.is_compiling()
    short = SHORT if biased else border(context)
    long = context.memory.position.shape[1] > QUERIES + window.left + _right(context, window) + short
    return regular and long and context.capture is None and context.backend != "dense"


def border(context: Context) -> int:
    """How much longer than a piece a row must be. While a model learns it has a key, and the border is that of every
    machine: the paths drop other weights and round otherwise, and a run must continue elsewhere as it began."""
    given = os.environ.get(BORDER, "") if context.key is None else ""
    return int(given) if given.isdecimal() else SHORT


def windowed(q: Tensor, keys: KVCache, context: Context, window: Window, rate: float, marks: bool = False) -> Tensor:
    """q [B, H, L, d], keys [B, H, M, d] -> [B, H, L, d] of a context that `fits`. With `marks`, marked keys are seen
    from everywhere."""
    key = context.at("weights").key if rate and not q.is_meta else None
    with torch.autocast("cpu" if q.is_meta else q.device.type, enabled=False):  # a meta tensor has shapes only
        name = f"window.{window}.{marks}.{q.shape[1]}.{q.dtype}"
        plan = context.once(name, lambda: Plan(()) if q.is_meta else _plan(q, context, window, marks))
        if key is not None:
            count = len(plan.pieces)
            key = DropoutKey(key.within(torch.arange(count, device=q.device), count).seeds, key.site)
        return _Windowed.apply(q, keys.k.to(q.dtype), keys.v.to(q.dtype), plan, key, rate)


def counted(q: Tensor, keys: KVCache, context: Context, window: Window) -> Tensor:
    """Shapes alone, for whoever counts products: every query has the keys that its window holds."""
    reach = window.left + _right(context, window) + 1
    return q @ keys.k[:, :, :reach].transpose(-1, -2) @ keys.v[:, :, :reach]


def _right(context: Context, window: Window) -> int:
    return 0 if context.kind == "causal" else window.after


def _plan(q: Tensor, context: Context, window: Window, marks: bool) -> Plan:
    """Rows one after another, each cut alike: what is dropped of one does not depend on those beside it."""
    rows, heads, length, _ = q.shape
    marked = context.memory.marked if marks else None
    far = None if marked is None else tuple(row.nonzero()[:, 0] for row in marked)
    steps = window.dilation if isinstance(window.dilation, tuple) else (window.dilation,) * heads
    groups = [(step, *_runs([h for h in range(heads) if steps[h] == step])) for step in sorted(set(steps))]
    view, pieces = _View(q, context, window, far), []
    most = max(SCORES // view.near.numel(), 1)
    for row in range(rows):
        for step, *runs in groups:
            for residue in range(min(step, length)):
                for queries, among, hidden, dead in view.blocks(row, step, residue):
                    for run in runs:
                        for first in range(run.start, run.stop, most):
                            some = slice(first, min(first + most, run.stop))
                            pieces.append(Piece(row, some, queries, among, hidden, dead))
    return Plan(tuple(pieces), far)


def _runs(heads: list[int]) -> list[slice]:
    """Neighbours together."""
    runs: list[slice] = []
    for head in heads:
        if runs and runs[-1].stop == head:
            runs[-1] = slice(runs[-1].start, head + 1)
        else:
            runs.append(slice(head, head + 1))
    return runs


class _View:
    """What the pieces of a context see."""

    def __init__(self, q: Tensor, context: Context, window: Window, far: tuple[Tensor, ...] | None):
        self.context, self.far, self.like = context, far, q
        self.left, self.right = window.left, _right(context, window)
        self.length, self.memory = q.shape[2], context.memory.position.shape[1]
        assert context.offset is not None
        self.offset = context.offset
        reach = torch.arange(QUERIES + self.left + self.right, device=q.device)
        first = torch.arange(QUERIES, device=q.device)[:, None]
        self.near = (reach >= first) & (reach <= first + self.left + self.right)
        self.corners = _hide(self.near, q)
        self.starts = self._starts()

    def _starts(self) -> list[list[int]] | None:
        """Where documents begin in each row; None where visibility depends on more than these."""
        context = self.context
        if context.kind not in ("full", "causal"):
            return None
        if context.layout is None:
            document = context.memory.document
            borders = (document[:, 1:] != document[:, :-1]).cpu()
            return [(row.nonzero()[:, 0] + 1).tolist() for row in borders]
        starts: list[list[int]] = [[] for _ in self.like]
        for start in context.layout.starts:
            starts[start // context.layout.width].append(start % context.layout.width)
        return starts

    def blocks(self, row: int, step: int, residue: int) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
        """Queries, keys, what is hidden and who sees nothing, for the queries of every `step`-th token."""
        before = (residue + self.offset) // step  # keys of this residue before its first query
        rest = (residue + self.offset) % step
        count, total = len(range(residue, self.length, step)), len(range(rest, self.memory, step))
        for begin in range(0, count, QUERIES):
            end = min(begin + QUERIES, count)
            reach = begin + before - self.left
            first, last = max(reach, 0), min(end + before + self.right, total)
            queries = _every(step, residue, begin, end)
            keys = _every(step, rest, first, last)
            part = slice(end - begin), slice(first - reach, last - reach)
            whole = min(keys.start, queries.start + self.offset), max(keys.stop, queries.stop + self.offset)
            alone = self._alone(row, *whole)
            yield queries, keys, *self._hidden(row, step, queries, keys, part, alone)

    def _alone(self, row: int, first: int, last: int) -> bool:
        """Whether these tokens of memory are of one document and nothing else matters."""
        starts = None if self.starts is None else self.starts[row]
        return starts is not None and bisect_right(starts, first) == bisect_left(starts, last)

    def _hidden(
        self, row: int, step: int, queries: slice, keys: slice, part: tuple[slice, slice], alone: bool
    ) -> tuple[Tensor, Tensor | None]:
        if alone and self.far is None:
            return self.corners[part], None
        asking = _cut(self.context.query, row, queries)
        seen = self.near[part]
        if not alone:
            seen = seen & visible(asking, _cut(self.context.memory, row, keys))
        if self.far is not None:
            index = self.far[row]
            own = torch.arange(queries.start, queries.stop, step, device=index.device)[:, None] + self.offset
            distance = own - index
            twice = (distance <= self.left * step) & (distance >= -self.right * step) & (distance % step == 0)
            seen = torch.cat([seen, visible(asking, _cut(self.context.memory, row, index)) & ~twice], 1)
        dead = ~seen.any(1, keepdim=True)
        return _hide(seen, self.like), dead if bool(dead.any()) else None


def _every(step: int, residue: int, first: int, last: int) -> slice:
    return slice(residue + step * first, residue + step * (last - 1) + 1, step)


def _cut(side: TokenInfo, row: int, index: slice | Tensor) -> TokenInfo:
    return TokenInfo(*(value[row, index] for value in (side.position, side.document, side.appears, side.sees)))


def _hide(seen: Tensor, like: Tensor) -> Tensor:
    return like.new_zeros(seen.shape).masked_fill_(~seen, -math.inf)


class _Windowed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, key: DropoutKey | None, rate: float) -> Tensor:
        """Piece by piece: scores within the window, softmax, sums."""
        ctx.plan, ctx.rate, ctx.scale = plan, 0.0 if key is None else rate, 1 / math.sqrt(q.shape[-1])
        shapes = [(piece.heads.stop - piece.heads.start, *piece.hidden.shape) for piece in plan.pieces]
        ctx.drops = drops = None if key is None else Drops(key, rate, shapes)
        bits = q.new_empty(0) if drops is None else drops.room()
        ctx.save_for_backward(q, k, v, bits)
        out = _beside(q)
        for number, piece in enumerate(plan.pieces):
            kept = None if drops is None else drops.draw(number, bits)  # first, or it drives the weights out of cache
            asking = q[piece.row, piece.heads, piece.queries]
            near, value = (_reached(x, piece, plan) for x in (k, v))
            weights = _weights(asking, near, piece, ctx.scale)
            if kept is not None:
                weights.mul_(kept)
            torch.mul(torch.bmm(weights, value), 1 / (1 - ctx.rate), out=out[piece.row, piece.heads, piece.queries])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        """Gradients by hand, piece by piece."""
        q, k, v, bits = ctx.saved_tensors
        plan, scale = ctx.plan, ctx.scale
        dq, dk, dv = _beside(q), _beside(k).zero_(), _beside(v).zero_()
        for number, piece in enumerate(plan.pieces):
            at = piece.row, piece.heads, piece.queries
            asking, g = q[at], grads[0][at]
            if ctx.rate:
                g = g / (1 - ctx.rate)
            near, value = (_reached(x, piece, plan) for x in (k, v))
            weights = _weights(asking, near, piece, scale)
            d_weights = torch.bmm(g, value.transpose(1, 2))
            dropped = weights
            if ctx.drops is not None:
                kept = numbers(ctx.drops.again(number, bits), weights.dtype)
                d_weights.mul_(kept)
                dropped = kept.mul_(weights)
            d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            torch.mul(torch.bmm(d_scores, near), scale, out=dq[at])
            _add(dv, torch.bmm(dropped.transpose(1, 2), g), piece, plan, 1.0)
            _add(dk, torch.bmm(d_scores.transpose(1, 2), asking), piece, plan, scale)
        return dq, dk, dv, None, None, None


def _beside(x: Tensor) -> Tensor:
    """An empty [B, H, n, d] with the heads of a token beside each other, as projections write and read them."""
    rows, heads, length, size = x.shape
    return x.new_empty(rows, length, heads, size).transpose(1, 2)


def _reached(x: Tensor, piece: Piece, plan: Plan) -> Tensor:
    """[h, K, d] of a piece, a view; with marked tokens [h, K + G, d]."""
    near = x[piece.row, piece.heads, piece.keys]
    if plan.far is None:
        return near
    return torch.cat([near, x[piece.row, piece.heads].index_select(1, plan.far[piece.row])], 1)


def _weights(asking: Tensor, near: Tensor, piece: Piece, scale: float) -> Tensor:
    hidden = piece.hidden.expand(len(asking), -1, -1)
    weights = torch.baddbmm(hidden, asking, near.transpose(1, 2), alpha=scale).softmax(-1)
    return weights if piece.dead is None else weights.masked_fill_(piece.dead, 0.0)


def _add(into: Tensor, what: Tensor, piece: Piece, plan: Plan, scale: float) -> None:
    """What `_reached` took is where the gradient goes."""
    near = into[piece.row, piece.heads, piece.keys]
    near.add_(what[:, : near.shape[1]], alpha=scale)
    if plan.far is not None:
        into[piece.row, piece.heads].index_add_(1, plan.far[piece.row], what[:, near.shape[1] :], alpha=scale)
