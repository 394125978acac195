"""Attention by content and by distance in one buffer, written out forward and backward.

    s_ij = q_i . k_j + a_i . r_{i - j},   out_i = sum_j softmax(s_i)_j v_j        (scaled; plus what else is added)

a_i . r is first computed by distance, [L, R] with R > M. Where a row of it begins one place earlier than the row above
ends, key j of query i stands at [i, j] of rows that are one shorter: the same memory, seen with other strides, is by
key. So the product with the keys is added where it belongs, nothing is copied or gathered, and on the way back the
gradient of the scores is written by key and read by distance:

    d_i = g_i . out_i,  ds = p * (keep * (g v^T) / (1 - rate) - d)
    dq = ds k,  dk = ds^T q,  da = ds_by_distance r,  dr = ds_by_distance^T a

Heads come before rows, so that all rows meet the vectors of distances in one product a head.
"""

import math
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, keep, numbers
from clozeworks.nn.mixer import Apart


def by_distance(
    q: Tensor,
    keys: KVCache,
    apart: Apart,
    context: Context,
    key: DropoutKey | None,
    rate: float,
    allowed: Tensor | None = None,
) -> Tensor:
    """q [B, H, L, d], keys [B, H, M, d] -> [B, H, L, d]; weights are dropped by `key`, and `allowed` [B, 1, L, M] says
    more than what is visible."""
    name = "hidden" if allowed is None else f"hidden.{id(allowed)}"
    hidden, dead = context.once(name, lambda: _hidden(context, allowed))
    with torch.autocast("cpu" if q.is_meta else q.device.type, enabled=False):  # a meta tensor has shapes only
        return _ByDistance.apply(
            q, keys.k.to(q.dtype), keys.v.to(q.dtype), apart.asked, apart.table.to(q.dtype), apart.added, hidden, dead,
            key, rate,
        )  # fmt: skip


def by_key(scores: Tensor, memory: int) -> Tensor:
    """[N, L, R] by distance -> [N, L, M] by key, in the same memory."""
    count, length, rows = scores.shape
    return scores.as_strided((count, length, memory), (length * rows, rows - 1, 1), length - 1)


class _ByDistance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, asked: Tensor, table: Tensor, added: Tensor | None, hidden: Tensor,
        dead: Tensor | None, key: DropoutKey | None, rate: float,
    ) -> Tensor:  # fmt: skip
        """Scores with the term of distance, by shifting instead of gathering."""
        rows, heads, length, size = q.shape
        ctx.scale, ctx.shape, ctx.keep_scale = 1 / math.sqrt(size), (heads, rows), 1 / (1 - rate)
        q, k, v, asked = (_by_head(each) for each in (q * ctx.scale, k, v, asked * ctx.scale))
        asked, table = _one_product(asked, table, heads)
        scores = (asked @ table.transpose(1, 2)).view(heads * rows, length, -1)
        weights = by_key(scores, k.shape[1]).baddbmm_(q, k.transpose(1, 2)).unflatten(0, ctx.shape)
        weights.add_(hidden.to(q.dtype))
        if added is not None:
            weights.add_(added.transpose(0, 1))
        weights = weights.softmax(-1)
        if dead is not None:
            weights.masked_fill_(dead, 0.0)
        kept = None
        dropped = weights
        if key is not None:
            kept = keep(key.seeds, key.starts, key.site, weights.transpose(0, 1), rate).transpose(0, 1)
            dropped = numbers(kept, weights.dtype).mul_(weights).mul_(ctx.keep_scale)
        out = dropped.flatten(0, 1) @ v
        ctx.save_for_backward(q, k, v, asked, table, weights.flatten(0, 1), kept, out)
        ctx.added = None if added is None else added.shape
        return out.unflatten(0, ctx.shape).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        """Gradients by hand."""
        q, k, v, asked, table, weights, kept, out = ctx.saved_tensors
        g, (count, length, memory), rows = _by_head(grads[0]), weights.shape, table.shape[1]
        scores = torch.empty(count, length, rows, dtype=g.dtype, device=g.device)
        _clear(scores, memory)
        ds = by_key(scores, memory)
        mean = (g * out).sum(-1, keepdim=True)
        dropped = weights
        if kept is None:  # one more column of each subtracts the mean within the product
            torch.bmm(
                torch.cat([g, -mean], -1), torch.cat([v, torch.ones_like(v[..., :1])], -1).transpose(1, 2), out=ds
            )
        else:
            dropped = numbers(kept, g.dtype).flatten(0, 1).mul_(ctx.keep_scale)
            torch.bmm(g, v.transpose(1, 2), out=ds).mul_(dropped).sub_(mean)
            dropped.mul_(weights)
        ds.mul_(weights)
        dq, dk = torch.bmm(ds, k).mul_(ctx.scale), ds.transpose(1, 2) @ q
        ds_far = scores.view(len(table), -1, rows)
        d_asked, d_table = torch.bmm(ds_far, table).mul_(ctx.scale).view_as(q), ds_far.transpose(1, 2) @ asked
        back = lambda x: x.unflatten(0, ctx.shape).transpose(0, 1)  # noqa: E731
        return (
            back(dq), back(dk), back(dropped.transpose(1, 2) @ g), back(d_asked),
            back(d_table) if len(table) == count else d_table[None],
            back(ds).sum_to_size(ctx.added) if ctx.added is not None and ctx.needs_input_grad[5] else None,
            None, None, None, None,
        )  # fmt: skip


def _by_head(x: Tensor) -> Tensor:
    """[B, H, n, d] -> [H * B, n, d]."""
    return x.transpose(0, 1).flatten(0, 1)


def _one_product(asked: Tensor, table: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """[H * B, L, d] and [1 or B, H, R, d] as the operands of one product a head, or one a head and row."""
    return (asked.view(heads, -1, asked.shape[-1]), table[0]) if len(table) == 1 else (asked, _by_head(table))


def _clear(scores: Tensor, memory: int) -> None:
    """Zero what no key stands at."""
    length, rows = scores.shape[1:]
    if rows - 1 > memory:
        scores.zero_()
        return
    flat = scores.flatten(1)
    flat[:, : length - 1] = 0
    flat[:, length - 1 + length * memory :] = 0


def _hidden(context: Context, allowed: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """[1, B, L, M], 0 and -inf, to add to scores; and the queries that see nothing, [1, B, L, 1], if there are any."""
    mask = (context.mask() if allowed is None else context.mask() & allowed).transpose(0, 1)
    hidden = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
    dead = ~mask.any(-1, keepdim=True)
    return hidden, dead if not mask.is_meta and bool(dead.any()) else None
