"""Scaled dot-product attention: one dense definition, and fast paths that must equal it.

    out_i = sum_j w_ij v_j,   w_i = softmax over the visible j of (q_i . k_j / sqrt(d) + bias_ij)

A row that sees nothing gives 0. q is [B, H, L, d], k and v are [B, H, M, d]. Cost: O(L M d) time; the dense path
also O(L M) memory, the others O(L + M).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.batch import Context, Keys
from clozeworks.key import dropout
from clozeworks.nn.mixer import BiasLayer
from clozeworks.nn.shifted import by_distance
from clozeworks.nn.tiled import tiled

LONG = 256  # below this a masked row is as fast as gathering its documents (measured on CPU)


def attend(q: Tensor, keys: Keys, context: Context, bias: BiasLayer | None = None, rate: float = 0.0) -> Tensor:
    """Choose the path. Taps need the weights themselves, hence the dense one; dropout needs them too, in tiles."""
    drops = rate > 0 and context.key is not None
    borders, regular = context.borders, context.kind in ("full", "causal") and context.offset == 0 and bias is None
    if context.taps is not None or context.backend == "dense":
        return dense(q, keys, context, bias, rate)
    if bias is not None and context.backend == "auto" and not torch.compiler.is_compiling():
        found = bias.apart(q, context, 1 / math.sqrt(q.shape[-1]))
        if found is not None:
            return by_distance(found[0], keys, found[1], context, rate if drops else 0.0)
    if drops:
        # Tiles follow the borders, which are other integers in every batch: a compiler would start anew each time.
        fits = regular and borders is not None and not torch.compiler.is_compiling()
        return tiled(q, keys, context, rate) if fits else dense(q, keys, context, bias, rate)
    if regular and borders is not None and context.backend != "sdpa":
        long = borders.width >= LONG or context.backend == "documents"
        if long and not borders.plain:
            return by_document(q, keys, context)
    return sdpa(q, keys, context, bias)


def dense(q: Tensor, keys: Keys, context: Context, bias: BiasLayer | None = None, rate: float = 0.0) -> Tensor:
    """The definition."""
    scale = 1 / math.sqrt(q.shape[-1])
    q, added, mask = _biased(q, context, bias, scale)
    scores = (q * scale) @ keys.k.transpose(-1, -2)
    if added is not None:
        scores = scores + added
    lowest = torch.finfo(scores.dtype).min
    weights = torch.where(mask, scores, lowest).softmax(-1)
    dead = context.once("dead", lambda: _dead(context.mask())) if bias is None else _dead(mask)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if context.taps is not None:
        for kind, tensor in (("scores", scores), ("weights", weights), ("values", keys.v)):
            context.taps.keep(kind, tensor)
    weights = dropout(weights, rate, context.at("weights").key)
    return weights @ keys.v


def sdpa(q: Tensor, keys: Keys, context: Context, bias: BiasLayer | None = None) -> Tensor:
    """torch's fused kernel, with a mask only where one is needed."""
    if bias is None and context.borders is not None and context.borders.plain and context.offset == 0:
        if context.kind == "full":
            return F.scaled_dot_product_attention(q, keys.k, keys.v)
        if context.kind == "causal":
            return F.scaled_dot_product_attention(q, keys.k, keys.v, is_causal=True)
    q, added, mask = _biased(q, context, bias, 1 / math.sqrt(q.shape[-1]))
    if added is not None:
        mask = added.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(q, keys.k, keys.v, attn_mask=mask)


def by_document(q: Tensor, keys: Keys, context: Context) -> Tensor:
    """Packed rows without the pairs between documents: gather documents of one length, attend, put them back.

    Linear in the row length for documents of bounded length; q, k and v travel in one gather.
    """
    borders = context.borders
    assert borders is not None
    rows, heads, length, size = q.shape
    index, groups = context.once("by_length", lambda: _on(borders.by_length, q.device))
    inverse = context.once(
        "by_length_back",
        lambda: torch.empty_like(index).scatter_(0, index, torch.arange(len(index), device=index.device)),
    )
    flat = torch.stack([q, keys.k, keys.v], 3).permute(0, 2, 1, 3, 4).reshape(rows * length, heads, 3, size)
    flat = flat.index_select(0, index)
    out = []
    for part, (count, width) in zip(flat.split([c * w for c, w in groups]), groups, strict=True):
        triple = part.view(count, width, heads, 3, size).permute(3, 0, 2, 1, 4)
        a, b, c = triple.unbind(0)
        mixed = F.scaled_dot_product_attention(a, b, c, is_causal=context.kind == "causal")
        out.append(mixed.transpose(1, 2).reshape(count * width, heads, size))
    mixed = torch.cat(out).index_select(0, inverse)
    return mixed.view(rows, length, heads, size).transpose(1, 2)


def _biased(q: Tensor, context: Context, bias: BiasLayer | None, scale: float) -> tuple[Tensor, Tensor | None, Tensor]:
    if bias is None:
        return q, None, context.mask()
    q, added, allowed = bias(q, context, scale)
    return q, added, context.mask() if allowed is None else context.mask() & allowed


def _dead(mask: Tensor) -> Tensor | None:
    """Rows that see nothing, or None if there are none."""
    dead = ~mask.any(-1, keepdim=True)
    if torch.compiler.is_compiling():  # a graph cannot look, and to fill nothing is no fault
        return dead
    return dead if not mask.is_meta and bool(dead.any()) else None  # a meta tensor has shapes and no values


def _on(by_length: tuple[Tensor, tuple[tuple[int, int], ...]], device: torch.device):
    return by_length[0].to(device), by_length[1]
