"""Scaled dot-product attention: one dense definition, and fast paths that must equal it.

    out_i = sum_j w_ij v_j,   w_i = softmax over the visible j of (q_i . k_j / sqrt(d) + bias_ij)

A row that sees nothing gives 0. q is [B, H, L, d], k and v are [B, H, M, d]. Cost: O(L M d) time; the dense path
also O(L M) memory, the others O(L + M).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.nn.kernels.blocks import Blocks
from clozeworks.nn.kernels.read_only import read_only
from clozeworks.nn.kernels.recent import recent
from clozeworks.nn.kernels.shifted import by_distance
from clozeworks.nn.kernels.tiled import tiled
from clozeworks.nn.kernels.windowed import counted, fits, windowed
from clozeworks.nn.mixer import BiasLayer
from clozeworks.nn.window import Window

LONG = 256  # below this a masked row is as fast as gathering its documents (measured on CPU)


def attend(
    q: Tensor,
    keys: KVCache,
    context: Context,
    bias: BiasLayer | None = None,
    rate: float = 0.0,
    window: Window | None = None,
) -> Tensor:
    """Choose the path. Taps and a bias of values need the weights themselves, hence the dense one; dropout needs them
    too, in tiles. A window has paths of its own."""
    if window is not None:
        return _near(q, keys, context, bias, rate, window)
    drops = rate > 0 and context.key is not None
    borders, regular = context.layout, context.kind in ("full", "causal") and context.offset == 0 and bias is None
    if context.capture is not None or context.backend == "dense" or (bias is not None and bias.adds_values):
        return dense(q, keys, context, bias, rate)
    if bias is not None and (reach := reach_of(bias, context)) is not None:
        return recent(q, keys, context, bias, rate if drops else 0.0, reach, dense)
    if bias is not None and context.backend == "auto" and not torch.compiler.is_compiling():
        parts = bias.apart(q, context, 1 / math.sqrt(q.shape[-1]))
        if parts is not None and not torch.is_grad_enabled() and not drops:
            return read_only(parts[0], keys, parts[1], context)
        if parts is not None:
            return by_distance(parts[0], keys, parts[1], context, _key(q, context, rate), rate if drops else 0.0)
    if drops:
        # Tiles follow the borders, which are other integers in every batch: a compiler would start anew each time.
        fits = regular and borders is not None and not torch.compiler.is_compiling()
        return tiled(q, keys, context, rate) if fits else dense(q, keys, context, bias, rate)
    if regular and borders is not None and context.backend != "sdpa":
        long = borders.width >= LONG or context.backend == "documents"
        if long and not borders.plain:
            return by_document(q, keys, context)
    if fused_is_slow(q, context) and keys.k.shape[2] < LONG and context.backend == "auto":
        return dense(q, keys, context, bias)
    return sdpa(q, keys, context, bias)


def fused_is_slow(q: Tensor, context: Context) -> bool:
    """Whether torch's fused kernel is slower than the products it is made of.

    In bf16 on a CPU its way back takes two to five times as long as they do (docs/benchmarks.md), at every length for
    which their scores fit into memory with ease. A pass that is computed again for its gradients has none at first,
    and must take the same path both times.
    """
    here = q.dtype == torch.bfloat16 and q.device.type == "cpu"
    trains = torch.is_grad_enabled() or context.replay is not None
    return here and trains and not torch.compiler.is_compiling()


def _near(q: Tensor, keys: KVCache, context: Context, bias: BiasLayer | None, rate: float, window: Window) -> Tensor:
    """A bias takes blocks, which are contexts of their own; for it there is no fast path in steps of several tokens."""
    if q.is_meta and context.backend == "dense" and bias is None:
        return counted(q, keys, context, window)
    fast = fits(context, window, biased=bias is not None)
    if fast and bias is None:
        return windowed(q, keys, context, window, rate)
    if fast and window.dilation == 1:
        blocks = Blocks.of(context, window)
        return blocks.back(attend(blocks.queries(q), blocks.keys(keys), blocks.inner(context), bias, rate))
    near = context.once(f"near.{window}", lambda: window.near(context))
    return dense(q, keys, context, bias, rate, near) if bias is not None else masked(q, keys, context, rate, near)


def masked(q: Tensor, keys: KVCache, context: Context, rate: float, near: Tensor) -> Tensor:
    """Short rows, of which only the pairs in `near` [B, 1 or H, L, M] count."""
    drops = rate > 0 and context.key is not None
    if drops or context.capture is not None or context.backend == "dense":
        return dense(q, keys, context, None, rate, near)
    return F.scaled_dot_product_attention(q, keys.k, keys.v, attn_mask=context.mask() & near)


def reach_of(bias: BiasLayer | None, context: Context) -> int | None:
    """How many rows before its queries attention has to look at; None: all that there are."""
    if bias is None or context.capture is not None or context.backend != "auto" or torch.compiler.is_compiling():
        return None
    regular = context.kind == "causal" and context.offset is not None and context.backward is None
    if not regular or context.memory.position.shape[1] != (context.offset or 0) + context.query.position.shape[1]:
        return None
    return bias.furthest()


def dense(
    q: Tensor,
    keys: KVCache,
    context: Context,
    bias: BiasLayer | None = None,
    rate: float = 0.0,
    near: Tensor | None = None,
) -> Tensor:
    """The definition; `near` [B, 1 or H, L, M] bool are the pairs worth computing, None: all."""
    scale = 1 / math.sqrt(q.shape[-1])
    q, added, mask = _biased(q, context, bias, scale)
    if near is not None:
        mask = mask & near
    scores = (q * scale) @ keys.k.transpose(-1, -2)
    if added is not None:
        scores = scores + added
    lowest = torch.finfo(scores.dtype).min
    weights = torch.where(mask, scores, lowest).softmax(-1)
    whole = bias is None and near is None
    dead = context.once("dead", lambda: _dead(context.mask())) if whole else _dead(mask)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if context.capture is not None:
        for kind, tensor in (("scores", scores), ("weights", weights), ("values", keys.v)):
            context.capture.keep(kind, tensor)
    weights = dropout(weights, rate, _key(q, context, rate))
    mixed = weights @ keys.v
    return mixed if bias is None or not bias.adds_values else mixed + bias.value(weights, context)


def sdpa(q: Tensor, keys: KVCache, context: Context, bias: BiasLayer | None = None) -> Tensor:
    """torch's fused kernel, with a mask only where one is needed."""
    if bias is None and context.layout is not None and context.layout.plain and context.offset == 0:
        if context.kind == "full":
            return F.scaled_dot_product_attention(q, keys.k, keys.v)
        if context.kind == "causal":
            return F.scaled_dot_product_attention(q, keys.k, keys.v, is_causal=True)
    q, added, mask = _biased(q, context, bias, 1 / math.sqrt(q.shape[-1]))
    if added is not None:
        mask = added.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(q, keys.k, keys.v, attn_mask=mask)


def by_document(q: Tensor, keys: KVCache, context: Context) -> Tensor:
    """Packed rows without the pairs between documents: gather documents of one length, attend, put them back.

    Linear in the row length for documents of bounded length; q, k and v travel in one gather.
    """
    borders = context.layout
    assert borders is not None
    rows, heads, length, size = q.shape
    if borders.runs is not None and not torch.is_grad_enabled():
        return _by_run(q, keys, borders.runs, context.kind == "causal")
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


def _by_run(q: Tensor, keys: KVCache, runs: tuple[tuple[int, int, int], ...], causal: bool) -> Tensor:
    """The same for documents that stand together by length: nothing has to be moved."""
    rows, heads, length, size = q.shape
    flat = [each.transpose(1, 2).reshape(rows * length, heads, size) for each in (q, keys.k, keys.v)]
    mixed = torch.empty_like(flat[0])
    for start, count, width in runs:
        own = slice(start, start + count * width)
        a, b, c = (each[own].view(count, width, heads, size).transpose(1, 2) for each in flat)
        out = F.scaled_dot_product_attention(a, b, c, is_causal=causal)
        mixed[own] = out.transpose(1, 2).reshape(count * width, heads, size)
    return mixed.view(rows, length, heads, size).transpose(1, 2)


def _key(q: Tensor, context: Context, rate: float) -> DropoutKey | None:
    """By which weights are dropped: a seed for each head of each query."""
    key = context.at("weights").key
    return key.grid(*q.shape[1:3]) if rate and key is not None else None


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
