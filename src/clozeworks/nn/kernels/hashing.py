"""Buckets of vectors that point the same way, and the order in which their tokens stand."""

import math

import torch
from torch import Tensor

from clozeworks.core.dropout import DropoutKey, normal
from clozeworks.core.token_info import DocumentLayout, TokenInfo

BLOCK = 1 << 20  # numbers turned together


def sizes(buckets: int | tuple[int, ...] | None, length: int, chunk: int) -> tuple[int, ...]:
    """How many buckets to use, as factors; None: two a chunk, to a power of two, and two factors where these are many.

    With factors f and g a vector is turned f/2 + g/2 ways to choose one of f g buckets.
    """
    if buckets is not None:
        return (buckets,) if isinstance(buckets, int) else buckets
    power = (2 * (length // chunk)).bit_length() - 1
    if 2**power <= 2 * max(math.isqrt(length // chunk), chunk):
        return (2**power,)
    return 2 ** (power // 2), 2 ** (power - power // 2)


def rotations(shape: tuple[int, ...], key: DropoutKey | None, seed: int, like: Tensor) -> Tensor:
    """Gaussian numbers: of a key if there is one, the same for all rows of its step; else of a seed."""
    if key is not None:
        return normal(key.common(key.site, "turn"), math.prod(shape)).view(shape)
    if like.is_meta:
        return like.new_empty(shape, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(like.device)


def hashed(x: Tensor, turn: Tensor, factors: tuple[int, ...]) -> Tensor:
    """x [B, L, H, d], turn [H, d, rounds, sum(factors) / 2] -> buckets [B, H, rounds, L], int32.

    bucket = argmax [x R; -x R] (Andoni et al. 2015); of several factors, the number with these digits, the first the
    lowest.
    """
    count, length, heads, size = x.shape
    rounds, ways = turn.shape[2:]
    flat, matrix = x.reshape(-1, heads, size).transpose(0, 1).to(turn.dtype), turn.flatten(2)  # [H, B L, d], [H, d, n]
    buckets = torch.empty(heads, count * length, rounds, dtype=torch.int32, device=x.device)
    step = count * length if x.is_meta else max(BLOCK // (heads * rounds * ways), 1)
    for start in range(0, count * length, step):
        turned = torch.bmm(flat[:, start : start + step], matrix).view(heads, -1, rounds, ways)
        bucket, first, weight = 0, 0, 1
        for factor in factors:
            part = turned[..., first : first + factor // 2]
            way = part.abs().argmax(-1, keepdim=True)
            way = way + (part.gather(-1, way) < 0) * (factor // 2)
            bucket, first, weight = bucket + weight * way[..., 0], first + factor // 2, weight * factor
        buckets[:, start : start + step] = bucket
    return buckets.view(heads, count, length, rounds).permute(1, 0, 3, 2)


def ordered(buckets: Tensor, total: int, whole: int, side: TokenInfo, borders: DocumentLayout | None) -> Tensor:
    """Buckets [B, H, rounds, L] of `total` -> the order [B, H, rounds, whole] in which tokens stand, int32.

    By document, bucket and position. What fills a row from L to `whole` comes last.
    """
    count, heads, rounds, length = buckets.shape
    many = 1
    if borders is None or not borders.plain:
        many = length if borders is None else len(borders.starts) - borders.rows + 1
        changed = side.document[:, 1:] != side.document[:, :-1]
        number = torch.nn.functional.pad(changed.cumsum(1), (1, 0))
        buckets = buckets + number[:, None, None] * total
    total *= many
    if whole > length:
        buckets = torch.nn.functional.pad(buckets, (0, whole - length), value=total)
        total += 1
    rows = count * heads * rounds
    small = rows * total < 2**31  # 32 bits in one row are sorted in linear time
    kind = torch.int32 if small else torch.int64
    key = buckets.reshape(rows, whole).to(kind) + torch.arange(rows, dtype=kind, device=buckets.device)[:, None] * total
    index = key.flatten().sort(stable=True).indices.view(rows, whole)
    index = index - torch.arange(rows, device=index.device)[:, None] * whole
    return index.to(torch.int32).view(count, heads, rounds, whole)
