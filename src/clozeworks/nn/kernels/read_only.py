"""Attention by content and by distance where nothing is learned: torch's fused kernel, with the rest as its mask.

    out_i = sum_j softmax_j(q_i . k_j + a_i . r_{i - j}) v_j        (scaled; plus what else is added)

a_i . r is computed by distance and seen by key in the same memory (`shifted`); the kernel adds it to the products with
the keys tile by tile, so that the scores of all pairs are written once and read once.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.nn.kernels.shifted import by_key
from clozeworks.nn.mixer import Apart


def read_only(q: Tensor, keys: KVCache, apart: Apart, context: Context) -> Tensor:
    """q [B, H, L, d], keys [B, H, M, d] -> [B, H, L, d]."""
    rows, heads, length, size = q.shape
    k, v, table = keys.k.to(q.dtype), keys.v.to(q.dtype), apart.table.to(q.dtype)
    with torch.autocast("cpu" if q.is_meta else q.device.type, enabled=False):  # a meta tensor has shapes only
        asked = apart.asked / math.sqrt(size)
        if len(table) == 1:  # all rows meet the vectors of distances in one product a head
            asked = asked.transpose(0, 1).reshape(heads, rows * length, size)
            scores = asked @ table[0].transpose(1, 2)
            added = (
                by_key(scores.view(heads * rows, length, -1), k.shape[2]).unflatten(0, (heads, rows)).transpose(0, 1)
            )
        else:
            scores = asked.flatten(0, 1) @ table.flatten(0, 1).transpose(1, 2)
            added = by_key(scores, k.shape[2]).unflatten(0, (rows, heads))
        first, hidden = context.once("later", lambda: later(context))
        added[..., first:].add_(hidden.to(q.dtype))
        if apart.added is not None:
            added.add_(apart.added)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added)


def later(context: Context) -> tuple[int, Tensor]:
    """From which key on something is hidden, and 0 and -inf to add to the scores from there: [B or 1, 1, L, M - first].

    Queries that continue with one document see all that was before them: only their own rows need be looked at.
    """
    query, memory, first = context.query, context.memory, context.offset or 0
    one = memory.document[:, :1]
    if (
        context.kind == "causal"
        and context.backward is None
        and not one.is_meta
        and bool((memory.document == one).all())
    ):
        length = query.position.shape[1]
        seen = torch.ones(length, memory.position.shape[1] - first, dtype=torch.bool, device=one.device).tril()[
            None, None
        ]
    else:
        first, seen = 0, context.mask()
    return first, torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)
