"""Attention between chunks: each looks at itself and at the chunks beside it, in a ring.

    out_i = sum_j w_ij v_j,   w_i = softmax over the near, visible j of q_i . k_j

Tokens stand in some order, or in several one after another (rounds), cut into chunks of C. A key that is near more than
once counts as often: all rounds are one softmax, which is what weighing them by their logsumexp amounts to.

O(n W C^2 d) time for n chunks that look at W. Forward and backward are written out and go through the chunks a piece at
a time, so that scores stay in the processor's cache and none are kept; on the way back they are computed again:

    p = exp(s - m) / z,   dv = p^T g,   ds = p * (g v^T - g . out),   dq = ds k,   dk = ds^T q
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, dropout, keep, numbers

SELF = -1e5  # the score of a token with itself, where it may look at itself only if it sees nothing else
HIDDEN = 1e9  # what a hidden pair loses, times how far it is from being seen
PIECE = 1 << 18  # scores computed together
COUNTED = 16  # pieces at most where shapes alone are followed, to count what a pass costs
OUTSIDE = -9  # the document of what fills the last chunk


@dataclass(frozen=True, slots=True)
class Ring:
    """Where the tokens of each head stand: n chunks of C slots, those of one row and head together.

    Facts of tokens are floats, in which integers are exact and comparing is cheap; None where all is visible.
    """

    tokens: Tensor  # [n, C] flat offsets into [B * L]; B * L for a slot that is empty
    rows: Tensor  # [n, C] and into the [B * L * H] vectors; 0 for a slot that is empty
    near: Tensor  # [n, W] the chunks that each looks at
    back: Tensor  # [B * L * H, rounds] the slots of each vector
    before: int  # of the W, those ahead of the chunk itself
    each: int  # chunks of a round
    document: Tensor | None  # [B * L + 1]
    appears: Tensor | None
    sees: Tensor | None

    @staticmethod
    def make(order: Tensor, chunk: int, before: int, after: int, context: Context) -> "Ring":
        """From the order [B, H, rounds, L or more] of the tokens of a row; those from L on are empty."""
        (count, heads, rounds, whole), length = order.shape, context.query.position.shape[1]
        device, order, each = order.device, order.long(), whole // chunk
        row = torch.arange(count, device=device)[:, None, None, None] * length
        head = torch.arange(heads, device=device)[:, None, None]
        real = order < length
        slot = torch.arange(order.numel(), device=device).view_as(order)
        back = torch.empty_like(slot).scatter_(-1, order, slot)[..., :length].permute(0, 3, 1, 2)
        around = torch.arange(rounds * each, device=device)[:, None] + torch.arange(-before, after + 1, device=device)
        first = torch.arange(count * heads, device=device)[:, None, None] * (rounds * each)
        plain = context.layout is not None and context.layout.plain and whole == length
        side, full = context.query, context.kind == "full"
        return Ring(
            torch.where(real, row + order, count * length).view(-1, chunk),
            torch.where(real, (row + order) * heads + head, 0).view(-1, chunk),
            (first + around % (rounds * each)).flatten(0, 1),
            back.reshape(-1, rounds),
            before,
            each,
            None if plain else F.pad(side.document.flatten().float(), (0, 1), value=OUTSIDE),
            None if full else F.pad(side.appears.flatten().float(), (0, 1)),
            None if full else F.pad(side.sees.flatten().float(), (0, 1)),
        )

    def pieces(self) -> Iterator[tuple[int, int]]:
        (chunks, size), wide = self.tokens.shape, self.near.shape[1]
        step = max(PIECE // (size * size * wide), -(-chunks // COUNTED) if self.tokens.is_meta else 1)
        return ((start, min(start + step, chunks)) for start in range(0, chunks, step))

    def window(self, index: Tensor, start: int, end: int) -> Tensor:
        """[n, C] of all chunks -> [end - start, W C]: of what these look at."""
        return index.index_select(0, self.near[start:end].flatten()).view(end - start, -1)

    def hidden(self, start: int, end: int) -> Tensor | None:
        """[end - start, C, W C] 0 where a pair is visible, else less; None: all are."""
        if self.document is None and self.sees is None:
            return None
        asking, asked = self.tokens[start:end], self.window(self.tokens, start, end)
        far = None
        if self.sees is not None and self.appears is not None:
            far = (self.sees[asking][:, :, None] - self.appears[asked][:, None, :]).clamp_(max=0)
        if self.document is not None:
            apart = (self.document[asking][:, :, None] - self.document[asked][:, None, :]).abs_()
            far = apart.neg_() if far is None else far.sub_(apart)
        return far

    def fill_self(self, scores: Tensor, start: int, end: int) -> None:
        """Scores [end - start, C, W C] of tokens with themselves, wherever a chunk looks at them.

        Where it is the only key, the gradients of its scores sum to nothing; elsewhere its weight is 0.
        """
        size = scores.shape[1]
        scores[..., self.before * size :][..., :size].diagonal(dim1=1, dim2=2).fill_(SELF)
        after, each = self.near.shape[1] - 1 - self.before, self.each
        if self.back.shape[1] == 1 and each > self.before + after:
            return  # in one round every other slot is another token
        strange = [n - start for n in range(start, end) if n % each < self.before or n % each >= each - after]
        if strange:
            at = torch.tensor(strange, device=scores.device)
            same = self.tokens[start:end][at][:, :, None] == self.window(self.tokens, start, end)[at][:, None, :]
            scores[at] = scores[at].masked_fill_(same, SELF)

    def times(self, count: int, heads: int) -> Tensor:
        """[B, H, L, L] how often a token is near another."""
        length = len(self.back) // (count * heads)
        place = torch.where(self.tokens < count * length, self.tokens % length, length)
        ring = torch.arange(len(place), device=place.device) // (self.each * self.back.shape[1])
        asking = (ring[:, None] * (length + 1) + place) * (length + 1)
        pairs = asking[:, :, None] + self.window(place, 0, len(place))[:, None, :]
        times = torch.bincount(pairs.flatten(), minlength=count * heads * (length + 1) ** 2)
        return times.view(count, heads, length + 1, length + 1)[..., :length, :length]


def dense(q: Tensor, k: Tensor | None, v: Tensor, ring: Ring, context: Context, rate: float) -> Tensor:
    """The definition: q, k, v [B, H, L, d] -> the same, by the scores of all pairs."""
    times, mask = ring.times(*q.shape[:2]), context.mask()
    scores = q @ (unit(q) if k is None else k).transpose(-1, -2)
    if k is None:
        itself = torch.eye(q.shape[2], dtype=torch.bool, device=q.device)
        scores, mask = scores.masked_fill(itself, SELF), mask | itself
    scores = (scores + times.log()).masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    if context.capture is not None:
        for kind, tensor in (("scores", scores), ("weights", weights), ("values", v)):
            context.capture.keep(kind, tensor)
    return dropout(weights, rate, context.at("weights").key) @ v


def attend(q: Tensor, k: Tensor | None, v: Tensor, ring: Ring, context: Context, rate: float) -> Tensor:
    """q, k, v [B, L, H, d] -> the same; without k, keys are the queries at unit length and a token is its own key only
    where it has no other."""
    # A meta tensor has shapes only: what it is asked for is the cost, which is not that of all pairs.
    if (context.backend == "dense" and not q.is_meta) or context.capture is not None:
        keys = None if k is None else k.transpose(1, 2)
        return dense(q.transpose(1, 2), keys, v.transpose(1, 2), ring, context, rate).transpose(1, 2)
    key, chunks = context.at("weights").key if rate else None, len(ring.tokens)
    if key is not None:
        key = key.within(torch.arange(chunks, device=q.device), chunks)
    flat = (None if x is None else x.reshape(-1, x.shape[-1]).float() for x in (q, k, v))
    with torch.autocast("cpu" if q.is_meta else q.device.type, enabled=False):
        return _Ring.apply(*flat, ring, key, rate if key else 0.0).view_as(q).to(v.dtype)


def unit(x: Tensor) -> Tensor:
    """x / |x|, with 1e-6 added to the mean square."""
    return x * _inverse(x)


def _inverse(x: Tensor) -> Tensor:
    return (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() + 1e-6 * x.shape[-1]).rsqrt()


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor | None, v: Tensor, ring: Ring, key: DropoutKey | None, rate: float
    ) -> Tensor:
        """Scores, softmax and sums of each chunk in each round of hashing; rounds are then weighed by their sums."""
        ctx.ring, ctx.key, ctx.rate = ring, key, rate
        keys, (chunks, size) = unit(q) if k is None else k, ring.tokens.shape
        out, top, total = q.new_empty(chunks, size, q.shape[1]), q.new_empty(chunks, size), q.new_empty(chunks, size)
        for start, end in ring.pieces():
            here = slice(start, end)
            index = ring.window(ring.rows, start, end).flatten()
            q_p, k_p, v_p = _rows(q, ring.rows[here], size), _rows(keys, index, -1), _rows(v, index, -1)
            k_p, v_p = (x.view(end - start, -1, x.shape[-1]) for x in (k_p, v_p))
            scores = _scores(q_p, k_p, ring, k is None, start, end)
            torch.amax(scores, -1, out=top[here])
            scores.sub_(top[here][..., None]).exp_()
            torch.sum(scores, -1, out=total[here])
            if key is not None:
                scores.mul_(_kept(key, scores, rate, here))
            torch.bmm(scores, v_p, out=out[here])
        tops, totals = (x.flatten()[ring.back] for x in (top, total))  # [N, rounds]
        top = tops.amax(1, keepdim=True)
        weight = (tops - top).exp_()
        total = (weight * totals).sum(1, keepdim=True)
        mixed = _sum(out, ring.back, weight.div_(total * (1 - rate)))
        ctx.save_for_backward(q, k, v, mixed, top, total)
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        """Gradients by hand; scores are computed again."""
        (q, k, v, mixed, top, total), ring = ctx.saved_tensors, ctx.ring
        keys, (chunks, size), wide = unit(q) if k is None else k, ring.tokens.shape, ring.near.shape[1]
        g = grads[0] / total
        delta = (g * mixed).sum(-1)
        g.div_(1 - ctx.rate)
        dq, dk, dv = q.new_empty(chunks, size, q.shape[1]), *q.new_zeros(2, chunks, size, q.shape[1])
        for start, end in ring.pieces():
            here = slice(start, end)
            index, asking = ring.window(ring.rows, start, end).flatten(), ring.rows[here]
            q_p, g_p, k_p, v_p = (_rows(x, at, size) for x, at in ((q, asking), (g, asking), (keys, index), (v, index)))
            k_p, v_p = (x.view(end - start, -1, x.shape[-1]) for x in (k_p, v_p))
            weight = _scores(q_p, k_p, ring, k is None, start, end)
            weight.sub_(top.flatten()[asking][..., None]).exp_()
            d_weight = g_p @ v_p.transpose(1, 2)
            dropped = weight
            if ctx.key is not None:
                kept = _kept(ctx.key, weight, ctx.rate, here)
                d_weight.mul_(kept)
                dropped = kept.mul_(weight)
            d_value = dropped.transpose(1, 2) @ g_p
            d_scores = d_weight.sub_(delta[asking][..., None]).mul_(weight)
            torch.bmm(d_scores, k_p, out=dq[here])
            d_key = d_scores.transpose(1, 2) @ q_p
            for part in range(wide):
                into, of = ring.near[here, part], slice(part * size, (part + 1) * size)
                dk.index_add_(0, into, d_key[:, of])
                dv.index_add_(0, into, d_value[:, of])
        dq, dk, dv = (_sum(x, ring.back) for x in (dq, dk, dv))
        if k is None:  # k = q r,  r = (|q|^2 + ...)^-1/2
            inverse = _inverse(q)
            along = (dk * q).sum(-1, keepdim=True) * inverse**3
            dq.addcmul_(dk, inverse).addcmul_(q, along, value=-1)
        return dq, None if k is None else dk, dv, None, None, None


def _kept(key: DropoutKey, like: Tensor, rate: float, here: slice) -> Tensor:
    return numbers(keep(key.seeds[here], None, key.site, like, rate), like.dtype)


def _rows(x: Tensor, index: Tensor, size: int) -> Tensor:
    return x.index_select(0, index.flatten()).view(-1, size, x.shape[-1]) if size > 0 else x.index_select(0, index)


def _scores(q: Tensor, k: Tensor, ring: Ring, alone: bool, start: int, end: int) -> Tensor:
    hidden = ring.hidden(start, end)
    keys = k.transpose(1, 2)
    scores = torch.bmm(q, keys) if hidden is None else torch.baddbmm(hidden, q, keys, beta=HIDDEN, out=hidden)
    if alone:
        ring.fill_self(scores, start, end)
    return scores


def _sum(slots: Tensor, back: Tensor, weight: Tensor | None = None) -> Tensor:
    """[n, C, d] -> [B * L * H, d]: what the slots of each vector hold together."""
    flat = slots.flatten(0, 1)
    if back.shape[1] == 1:
        picked = flat.index_select(0, back[:, 0])
        return picked if weight is None else picked.mul_(weight)
    return F.embedding_bag(back, flat, mode="sum", per_sample_weights=weight)


def whole(count: int, heads: int, length: int, context: Context) -> Ring:
    """One chunk a row: all pairs."""
    order = torch.arange(length, device=context.query.position.device).expand(count, heads, 1, length)
    return Ring.make(order, length, 0, 0, context)
