"""Attention with dropout on its weights, in tiles as long as the documents, not as the rows.

A packed row of 128 tokens holds a handful of sentences, and nine tenths of its 128 x 128 scores are between sentences
that may not see each other. Here documents of similar length are gathered into one tile [n, H, w, w]; whole rows are
the case w = L. Forward and backward are written out, so that the weights and one byte a weight are all that is kept:

    p = softmax(q k^T / sqrt(d)),  out = (p * keep / (1 - rate)) v
    dv = (p * keep)^T g / (1 - rate),  dp = keep * (g v^T) / (1 - rate),  ds = p * (dp - sum_j p dp)
    dq = ds k / sqrt(d),  dk = ds^T q / sqrt(d)

Where no token sees a later one, a tile is cut into bands of queries, and a band has scores only with the keys up to its
end: five eighths of them in a tile of 512, three quarters in one of 128.

Equals the dense path without dropout; with it, other weights are dropped (other shapes), at the same rate.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, keep, numbers
from clozeworks.core.token_info import DocumentLayout

WIDTHS = torch.tensor([n << power for power in range(3, 20) for n in (2, 3)])  # 16, 24, 32, 48, 64, 96, 128, ...


@dataclass(frozen=True, slots=True)
class Tiles:
    """Where each token of each head goes: to a slot of d numbers. Slots beyond a document's end repeat its start."""

    slots: Tensor  # [slots] index into the [B * L * H] rows of q, k and v
    back: Tensor  # [B * L * H] the slot of each of them
    real: Tensor | None  # [slots, 1] bool, None if every slot is
    groups: tuple[tuple[int, int, Tensor | None], ...]  # tiles, width, what is added to their scores
    firsts: Tensor  # [documents] where each begins, in the order of the tiles
    causal: bool

    @staticmethod
    def make(borders: DocumentLayout, heads: int, causal: bool, device: torch.device) -> "Tiles":
        """Documents of about one length as the rows of one group of tiles, filled up to the width of the group."""
        starts, lengths = torch.tensor(borders.starts), torch.tensor(borders.lengths)
        bucket = torch.bucketize(lengths, WIDTHS)
        slots, real, groups, firsts = [], [], [], []
        for size in bucket.unique().tolist():
            first, length = starts[bucket == size], lengths[bucket == size]
            # As wide as the bucket, not as its longest: what is dropped of a document must not depend on the others.
            place = torch.arange(min(int(WIDTHS[size]), borders.width))
            inside = place < length[:, None]
            token = first[:, None] + place * inside
            slots.append((token[:, None] * heads + torch.arange(heads)[:, None]).flatten())
            real.append(inside[:, None].expand(-1, heads, -1).flatten())
            hidden = ~inside[:, None, None]
            if causal:
                hidden = hidden | (place > place[:, None])
            added = torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf).to(device) if hidden.any() else None
            groups.append((len(first), len(place), added))
            firsts.append(first)
        index, inside = torch.cat(slots), torch.cat(real)
        back = torch.empty(borders.rows * borders.width * heads, dtype=torch.int64)
        back[index[inside]] = inside.nonzero()[:, 0]
        return Tiles(
            index.to(device),
            back.to(device),
            None if inside.all() else inside[:, None].to(device),
            tuple(groups),
            torch.cat(firsts).to(device),
            causal,
        )

    def bands(self) -> list[list[tuple[int, int]]]:
        """Of each group, the queries whose scores are computed together; they see no key beyond their end."""
        return [bands(width) if self.causal else [(0, width)] for _, width, _ in self.groups]

    def cut(self, *flat: Tensor, heads: int) -> list[tuple[Tensor, ...]]:
        """[slots, d] as one [tiles * H, width, d] a group."""
        sizes = [count * heads * width for count, width, _ in self.groups]
        pieces = zip(*(tensor.split(sizes) for tensor in flat), strict=True)
        return [
            tuple(part.view(-1, width, part.shape[-1]) for part in parts)
            for parts, (_, width, _) in zip(pieces, self.groups, strict=True)
        ]


def bands(width: int) -> list[tuple[int, int]]:
    """A last piece of less than half a band is left to the one before it."""
    size = 64 if width <= 256 else 128  # smaller ones save less than their products lose (measured on CPU)
    starts = range(0, max(width - size // 2, 1), size)
    return [(start, start + size) for start in starts[:-1]] + [(starts[-1], width)]


def tiled(q: Tensor, keys: KVCache, context: Context, rate: float) -> Tensor:
    """q, k, v [B, H, L, d] of a full or causal self-attention -> [B, H, L, d]."""
    borders, heads = context.layout, q.shape[1]
    assert borders is not None
    causal = context.kind == "causal"
    tiles = context.once(f"tiles.{heads}", lambda: Tiles.make(borders, heads, causal, q.device))
    key = context.at("weights").key
    if key is not None:
        within, total = key.within, borders.rows * borders.width
        key = DropoutKey(context.once("tiles.seeds", lambda: within(tiles.firsts, total).seeds), key.site)
    # The rows of one head lie apart in [B, L, H, d], which is what the projections wrote: no copy before the gather.
    rows = (tensor.transpose(1, 2).reshape(-1, q.shape[-1]) for tensor in (q, keys.k, keys.v))
    with torch.autocast("cpu" if q.is_meta else q.device.type, enabled=False):  # a meta tensor has shapes only
        out = _Tiled.apply(*rows, tiles, heads, key, rate)
    return out.view(q.shape[0], q.shape[2], heads, q.shape[-1]).transpose(1, 2)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, heads: int, key: DropoutKey | None, rate: float
    ):
        """Scores, softmax and sums of one group of tiles after another."""
        rate = 0.0 if key is None else rate
        ctx.tiles, ctx.heads, ctx.scale, ctx.keep_scale = tiles, heads, 1 / math.sqrt(q.shape[1]), 1 / (1 - rate)
        # Both scales go where they are cheapest: on q and v, not on the weights.
        q = q.index_select(0, tiles.slots).mul_(ctx.scale)
        k = k.index_select(0, tiles.slots)
        v = v.index_select(0, tiles.slots).mul_(ctx.keep_scale)
        out, weights, kept = torch.empty_like(q), [], []
        pieces = tiles.cut(q, k, v, out, heads=heads)
        seeds = [None] * len(pieces) if key is None else key.seeds.split([count for count, _, _ in tiles.groups])
        for (count, width, added), (q_piece, k_piece, v_piece, out_piece), seed, cuts in zip(
            tiles.groups, pieces, seeds, tiles.bands(), strict=True
        ):
            mask = None
            if key is not None and seed is not None and rate:
                mask = keep(seed, None, key.site, q.new_empty((len(q_piece), width, width)), rate)
                kept.append(mask)
            for begin, end in cuts:
                scores = q_piece[:, begin:end] @ k_piece[:, :end].transpose(1, 2)
                if added is not None:
                    scores.view(count, heads, end - begin, end).add_(added[..., begin:end, :end])
                weight = scores.softmax(-1)
                weights.append(weight)
                if mask is not None:
                    weight = numbers(mask[:, begin:end, :end], weight.dtype).mul_(weight)
                torch.bmm(weight, v_piece[:, :end], out=out_piece[:, begin:end])
        ctx.save_for_backward(q, k, v, *weights, *kept)
        return out.index_select(0, tiles.back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        """Gradients by hand, group by group."""
        tiles, heads = ctx.tiles, ctx.heads
        q, k, v, *saved = ctx.saved_tensors
        cuts = tiles.bands()
        total = sum(map(len, cuts))
        weights, kept = list(saved[:total]), saved[total:] or [None] * len(cuts)
        g = grads[0].index_select(0, tiles.slots)
        if tiles.real is not None:
            g.mul_(tiles.real)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        pieces = tiles.cut(q, k, v, g, dq, dk, dv, heads=heads)
        for mask, (q_p, k_p, v_p, g_p, dq_p, dk_p, dv_p), cut in zip(
            reversed(kept), reversed(pieces), reversed(cuts), strict=True
        ):
            for begin, end in reversed(cut):  # the last sees all keys, and so writes where the others add
                weight = weights.pop()
                g_band = g_p[:, begin:end]
                d_weight = g_band @ v_p[:, :end].transpose(1, 2)
                dropped = weight
                if mask is not None:
                    dropped = numbers(mask[:, begin:end, :end], weight.dtype)
                    d_weight.mul_(dropped)
                    dropped.mul_(weight)
                d_scores = torch.ops.aten._softmax_backward_data(d_weight, weight, -1, weight.dtype)
                torch.bmm(d_scores, k_p[:, :end], out=dq_p[:, begin:end])
                for into, left, right in ((dv_p, dropped, g_band), (dk_p, d_scores, q_p[:, begin:end])):
                    if end == into.shape[1]:
                        torch.bmm(left.transpose(1, 2), right, out=into)
                    else:
                        into[:, :end].baddbmm_(left.transpose(1, 2), right)
        dq, dk, dv = (d.index_select(0, tiles.back) for d in (dq, dk, dv))
        return dq.mul_(ctx.scale), dk, dv.mul_(ctx.keep_scale), None, None, None, None
