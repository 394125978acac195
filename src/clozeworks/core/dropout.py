"""Randomness inside the model: a key in the context, folded by depth and site, decides every dropped unit.

Nothing consults `train()` or a global generator. What is dropped of a row depends on the run's seed, the step, the
number of the row in that step, the width that all rows of the step are filled up to (`row_widths`), and the site; not
on the rows beside it. So the same step cut into other
micro-batches, or spread over other processes, drops the same; a shared layer gets other masks at each depth,
recomputation gets the same ones, and a resumed run needs only the number of its step.

The generator is that of `counter_rng`, SplitMix64 as a counter, on whatever device the tensor is: a quarter of the
cost of `bernoulli_`, which runs in one thread, and the same bits everywhere.
"""

import math
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from clozeworks.core import counter_rng

LANES = 4  # draws of 16 bits in a word of 64


@dataclass(frozen=True, slots=True)
class DropoutKey:
    """Seeds that change with the step (a tensor: no recompilation) and a site that is fixed by the model.

    Each seed rules an equal share of what is drawn, in order: a row of the batch; one alone rules all.
    """

    seeds: Tensor  # [units] int64
    site: int = 0
    starts: Tensor | None = None  # [units] where only single tokens of a unit are left: which one of its tokens
    step: Tensor | None = None  # [1] the seed of what all units have in common; None: `seeds` is that one

    @staticmethod
    def make(*numbers: int, rows: range | None = None) -> "DropoutKey":
        """From run seed, step, ...; with `rows`, the numbers of the rows of a batch within its step, one seed each."""
        seeds = counter_rng.fold(0, *numbers)
        if rows is None:
            return DropoutKey(_words(seeds[None]))
        return DropoutKey(_words(counter_rng.fold(seeds, np.arange(rows.start, rows.stop))), step=_words(seeds[None]))

    def at(self, *site: int | str) -> "DropoutKey":
        return DropoutKey(self.seeds, _fold(self.site, *site), self.starts, self.step)

    def common(self, *site: int | str) -> "DropoutKey":
        """For what there is once for all rows and layers of a step, whichever of them are here."""
        return DropoutKey(self.seeds[:1] if self.step is None else self.step, _fold(0, *site))

    def to(self, device: torch.device | str) -> "DropoutKey":
        move = lambda value: None if value is None else value.to(device)  # noqa: E731
        return DropoutKey(self.seeds.to(device), self.site, move(self.starts), move(self.step))

    def within(self, places: Tensor, total: int) -> "DropoutKey":
        """A seed for each of `places`, offsets among the `total` of them that the units hold together."""
        unit, place = self._unit(places, total)
        return DropoutKey(_finalise(self.seeds[unit] + (place + 1) * _GOLDEN), self.site, None, self.step)

    def tokens(self, places: Tensor, total: int) -> "DropoutKey":
        """For the tokens at `places` alone: they are dropped as they would be among all."""
        unit, place = self._unit(places, total)
        starts = place if self.starts is None else self.starts[unit] + place
        return DropoutKey(self.seeds[unit], self.site, starts, self.step)

    def grid(self, heads: int, queries: int) -> "DropoutKey":
        """A seed for each head of each query of a unit, the same however many queries are asked beside it."""
        place = torch.arange(queries * heads, device=self.seeds.device).view(queries, heads).t().flatten()
        return DropoutKey(_finalise(self.seeds[:, None] + (place + 1) * _GOLDEN).flatten(), self.site, None, self.step)

    def states(self) -> np.ndarray:
        """[units] what the draws of each seed begin with, for `keep_on_host`; of a key on the host."""
        return counter_rng.fold(self.seeds.numpy().view(np.uint64), self.site)

    def _unit(self, places: Tensor, total: int) -> tuple[Tensor, Tensor]:
        share = total // len(self.seeds)
        return places // share, places % share


def _words(seeds: np.ndarray) -> Tensor:
    return torch.from_numpy(seeds.view(np.int64))


def _fold(folded: int, *site: int | str) -> int:
    for name in site:
        folded = zlib.crc32(str(name).encode(), folded)
    return folded


# Sites are fixed by the model: a compiler need not look inside. `torch.compiler.assume_constant_result` says just this,
# but loads the compiler first, which takes as long again as torch itself, in processes that compile nothing too.
_fold._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


@torch.library.custom_op("clozeworks::keep", mutates_args=())
def keep(seeds: Tensor, starts: Tensor | None, site: int, like: Tensor, rate: float) -> Tensor:
    """A bool mask of the shape of `like`, True with probability 1 - rate (to 1/65536).

    Draw j of token t of a unit is stream j % 4 of word t * ceil(D / 4) + j // 4 of that unit; D is the last dimension.
    """
    units, width = len(seeds), like.shape[-1]
    words = -(-width // LANES)
    state = _finalise(seeds * _GOLDEN + _constant(site))
    if starts is not None:
        state += starts * _signed(words * _GOLDEN)
    each = like.numel() // max(units * width, 1)  # tokens of a unit
    noise = _finalise(state[:, None] + _counters(each * words, like.device))
    threshold = round(rate * 65536) - 32768
    kept = noise.view(torch.int16).ge_(threshold).to(torch.bool)  # a comparison into bools takes five times as long
    if width % LANES:
        kept = kept.view(units, each, words * LANES)[..., :width]
    return kept.reshape(like.shape).contiguous()


@keep.register_fake
def _(seeds: Tensor, starts: Tensor | None, site: int, like: Tensor, rate: float) -> Tensor:
    return torch.empty(like.shape, dtype=torch.bool, device=like.device)


def keep_on_host(state: np.uint64, shape: tuple[int, ...], rate: float) -> np.ndarray:
    """The mask that `keep` gives one unit, by numpy: a quarter of the time where a mask stays in a core's cache.

    `state` is one of `DropoutKey.states`.
    """
    width, tokens = shape[-1], math.prod(shape[:-1])
    words = -(-width // LANES)
    counters = _counters(tokens * words, torch.device("cpu")).numpy().view(np.uint64)
    bits = counters + state
    moved = np.empty_like(bits)
    for shift, factor in counter_rng.ROUNDS:
        np.right_shift(bits, shift, out=moved)
        np.bitwise_xor(bits, moved, out=bits)
        if factor is not None:
            np.multiply(bits, factor, out=bits)
    kept = bits.view(np.int16) >= np.int16(round(rate * 65536) - 32768)
    return np.ascontiguousarray(kept.reshape(tokens, words * LANES)[:, :width]).reshape(shape)


def normal(key: DropoutKey, size: int) -> Tensor:
    """N(0, 1), as many as asked for, of the first seed of a key; fp32, each from 53 bits."""
    bits = _finalise(key.seeds[:1] * _GOLDEN + _constant(key.site) + _counters(size, key.seeds.device))
    uniform = ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64).add_(0.5).mul_(2.0**-52).sub_(1)
    return torch.erfinv(uniform).mul_(math.sqrt(2)).float()


def _signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


_GOLDEN = _signed(int(counter_rng.GOLDEN))
_ROUNDS = [(int(shift), None if factor is None else _signed(int(factor))) for shift, factor in counter_rng.ROUNDS]


def _finalise(bits: Tensor) -> Tensor:
    """`counter_rng.finalise` for int64, in place: integers of torch wrap around, but shift their sign in: so masks."""
    moved = torch.empty_like(bits)
    for shift, factor in _ROUNDS:
        torch.bitwise_right_shift(bits, shift, out=moved)
        bits.bitwise_xor_(moved.bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            bits.mul_(factor)
    return bits


@cache
def _constant(site: int) -> int:
    """What `counter_rng.fold` adds for a number."""
    with np.errstate(over="ignore"):
        return _signed(int(counter_rng.finalise(np.asarray(site, np.uint64) + counter_rng.GOLDEN)))


_counted: dict[torch.device, Tensor] = {}


def _counters(size: int, device: torch.device) -> Tensor:
    """1 .. size times the golden ratio; the longest so far is kept."""
    table = _counted.get(device)
    if table is None or len(table) < size:
        table = _counted[device] = torch.arange(1, size + 1, device=device) * _GOLDEN
    return table[:size]


def dropout(x: Tensor, rate: float, key: DropoutKey | None) -> Tensor:
    """Inverted dropout under a key; no key, no randomness."""
    if key is None or rate == 0:
        return x
    return _Drop.apply(x, keep(key.seeds, key.starts, key.site, x.detach(), rate), 1 / (1 - rate))


def add_dropped(x: Tensor, branch: Tensor, rate: float, key: DropoutKey | None) -> Tensor:
    """x + dropout(branch), in one pass over memory instead of three."""
    if key is None or rate == 0:
        return x + branch
    return _AddDropped.apply(x, branch, keep(key.seeds, key.starts, key.site, branch.detach(), rate), 1 / (1 - rate))


def numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """1 and 0 of a type: as bytes they are converted four times as fast as bools are."""
    return mask.view(torch.uint8).to(dtype)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return numbers(mask, x.dtype).mul_(x).mul_(scale)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (mask,) = ctx.saved_tensors
        return numbers(mask, grads[0].dtype).mul_(grads[0]).mul_(ctx.scale), None, None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, branch: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale, ctx.dtype = scale, branch.dtype
        return torch.addcmul(x, branch.to(x.dtype), numbers(mask, x.dtype), value=scale)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (mask,) = ctx.saved_tensors
        return grads[0], numbers(mask, ctx.dtype).mul_(grads[0]).mul_(ctx.scale), None, None
