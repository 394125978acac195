"""Attention to a number of keys before each query, block by block of queries.

Queries b i to b (i + 1) - 1 need keys b i - reach to b (i + 1) - 1: a regular problem of its own, with `reach` older
rows before its queries, so that every row of the batch becomes as many rows as it has blocks and nothing else changes.
Of L (L + M) pairs L (b + reach) are computed; keys are copied once for each block that looks at them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.token_info import FORGOTTEN, TokenInfo
from clozeworks.nn.kernels.shifted import by_distance
from clozeworks.nn.mixer import BiasLayer

BLOCK = 64  # queries, twice as many where more than as many keys stand before them (measured on CPU)
NOWHERE = FORGOTTEN - 1  # the document of queries that fill up the last block: there are no keys of it


def recent(
    q: Tensor, keys: KVCache, context: Context, bias: BiasLayer, rate: float, reach: int, dense: Callable[..., Tensor]
) -> Tensor:
    """q [B, H, L, d], keys [B, H, M, d] -> [B, H, L, d]; `dense` is the definition, for a bias that is all or nothing.

    The context is causal and regular, and its last L keys are those of the queries.
    """
    rows, heads, length, _ = q.shape
    block = min(BLOCK if reach <= BLOCK else 2 * BLOCK, length)
    blocks = -(-length // block)
    inner = context.once(f"blocks.{reach}.{block}", lambda: _folded(context, reach, block))
    if context.key is not None:
        index = torch.arange(rows * blocks, device=q.device)
        inner = inner.replace(key=context.key.within(index, len(index)))
    k, v = (_windows(each, reach, block, length) for each in (keys.k, keys.v))
    q = _by_block(F.pad(q, (0, 0, 0, blocks * block - length)), blocks)
    parts = bias.apart(q, inner, 1 / math.sqrt(q.shape[-1]))
    if parts is None:
        out = dense(q, KVCache(k, v), inner, bias, rate)
    else:
        key = inner.at("weights").key if rate else None
        out = by_distance(parts[0], KVCache(k, v), parts[1], inner, key, rate, bias.allowed(inner))
    return out.transpose(0, 1).reshape(heads, rows, blocks * block, -1).transpose(0, 1)[:, :, :length]


def _folded(context: Context, reach: int, block: int) -> Context:
    """The context of the blocks: B rows of L queries become B * L / block rows of `block`."""
    length, offset = context.query.position.shape[1], context.offset or 0
    blocks = -(-length // block)
    after = blocks * block - length
    drop, before = max(offset - reach, 0), max(reach - offset, 0)

    def fold(side: TokenInfo, before: int, width: int, beyond: int) -> TokenInfo:
        def each(value: Tensor, blank: int = 0) -> Tensor:
            return F.pad(value, (before, after), value=blank).unfold(1, width, block).flatten(0, 1)

        folded = side.each(each)
        return dataclasses.replace(folded, document=each(side.document, beyond))

    query = fold(context.query, 0, block, NOWHERE)
    memory = fold(context.memory.each(lambda value: value[:, drop:]), before, reach + block, FORGOTTEN)
    return context.replace(
        query=query, memory=memory, offset=reach, layout=None, past=None, positions=None, key=None, scratch={}
    )


def _by_block(x: Tensor, blocks: int) -> Tensor:
    """[B, H, n * b, d] -> [B * n, H, b, d], in memory with the heads first."""
    return x.transpose(0, 1).unflatten(2, (blocks, -1)).flatten(1, 2).transpose(0, 1)


def _windows(x: Tensor, reach: int, block: int, length: int) -> Tensor:
    """Keys [B, H, M, d] -> those that each block looks at, [B * n, H, reach + b, d]."""
    x = x[:, :, max(x.shape[2] - length - reach, 0) :]
    blocks = -(-length // block)
    total = reach + blocks * block
    after = blocks * block - length
    x = F.pad(x, (0, 0, total - after - x.shape[2], after))
    return x if blocks == 1 else _Windows.apply(x, blocks, block).flatten(1, 2).transpose(0, 1)


class _Windows(torch.autograd.Function):
    """[B, H, reach + n * b, d] -> [H, B, n, reach + b, d]; back, what overlaps is added up in one buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: int, block: int) -> Tensor:
        ctx.shape, ctx.block = x.shape, block
        width = x.shape[2] - (blocks - 1) * block
        return x.transpose(0, 1).unfold(2, width, block).transpose(-1, -2).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        rows, heads, total, size = ctx.shape
        total_grad = grads[0].new_zeros(heads, rows, total, size)
        for number, part in enumerate(grads[0].unbind(2)):
            at = number * ctx.block
            total_grad[:, :, at : at + part.shape[2]] += part
        return total_grad.transpose(0, 1), None, None
