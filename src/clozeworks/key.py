"""Randomness inside the model: a key in the context, folded by depth and site, decides every dropped unit.

Nothing consults `train()` or a global generator. A shared layer gets other masks at each depth, recomputation
gets the same ones, and a resumed run needs only the number of its step.
"""

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks import draws


@dataclass(frozen=True, slots=True)
class Key:
    """A seed that changes with the step (a tensor: no recompilation) and a site that is fixed by the model."""

    seed: Tensor  # 0-dim int64 on the host
    site: int = 0

    @staticmethod
    def make(*numbers: int) -> "Key":
        """From run seed, step, micro-batch, rank, ..."""
        return Key(torch.tensor(int(draws.fold(0, *numbers)) >> 1, dtype=torch.int64))

    def at(self, *site: int | str) -> "Key":
        return Key(self.seed, _fold(self.site, *site))


@torch.compiler.assume_constant_result  # sites are fixed by the model: a compiler need not look inside
def _fold(folded: int, *site: int | str) -> int:
    for name in site:
        folded = zlib.crc32(str(name).encode(), folded)
    return folded


@torch.library.custom_op("clozeworks::keep", mutates_args=())
def keep(seed: Tensor, site: int, like: Tensor, rate: float) -> Tensor:
    """A bool mask of the shape of `like`, True with probability 1 - rate (to 1/65536)."""
    generator = torch.Generator(device=like.device)
    generator.manual_seed(int(draws.fold(int(seed), site)) >> 1)
    words = -(-like.numel() // 4)
    # The full int64 range: `random_()` alone never sets the top bit, which would bias every fourth draw.
    noise = torch.empty(words, dtype=torch.int64, device=like.device).random_(-(2**63), None, generator=generator)
    threshold = round(rate * 65536) - 32768
    return (noise.view(torch.int16)[: like.numel()] >= threshold).view(like.shape)


@keep.register_fake
def _(seed: Tensor, site: int, like: Tensor, rate: float) -> Tensor:
    return torch.empty(like.shape, dtype=torch.bool, device=like.device)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - rate)
        # Converted once and then in place: x * mask would convert too, into a buffer of its own.
        return mask.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (mask,) = ctx.saved_tensors
        return mask.to(grads[0].dtype).mul_(grads[0]).mul_(ctx.scale), None, None


def dropout(x: Tensor, rate: float, key: Key | None) -> Tensor:
    """Inverted dropout under a key; no key, no randomness."""
    if key is None or rate == 0:
        return x
    return _Drop.apply(x, keep(key.seed, key.site, x, rate), rate)
