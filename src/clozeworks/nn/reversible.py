"""Depth that keeps nothing: what went into a layer is computed back from what came out of it."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clozeworks.core.batch import Hidden
from clozeworks.core.cache import Cache
from clozeworks.core.context import Context, Memory
from clozeworks.core.errors import RecipeError
from clozeworks.nn.block import Block, BlockLayer
from clozeworks.nn.stack import Stack, StackLayer

Precision = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(slots=True)
class Reversible(Stack):
    """Two streams of residuals that need no activations for the way back (Kitaev et al. 2020, 3; Gomez et al. 2017).

    x1 = x2 = embedding;  y1 = x1 + mixer(norm x2),  y2 = x2 + ffn(norm y1);  out = dropout(norm [y1; y2]), [B, L, 2D]

    On the way back x2 = y2 - ffn(norm y1) and x1 = y1 - mixer(norm x2). So only the last pair is kept, whatever the
    depth, and each layer is computed once more, with the same units dropped (their key) and the same discrete choices
    (`Context.decide`): a third more arithmetic. Where few tokens are read after the last block, that one is not turned
    back, and behind its mixer the others are left out, as in `Stack`. Layers and weights of attention, for whoever
    asks, come with gradients by ordinary means and at the ordinary price; a layer is [y1; y2], whose second half is
    what the published class calls hidden states.

    A norm behind the sum cannot be computed back, hence place = pre. There is no memory, and no source to look at.
    """

    resumable: ClassVar[bool] = False

    def check(self, where: str) -> None:
        Stack.check(self, where)
        for block in self.block if isinstance(self.block, tuple) else (self.block,):
            for holds, name, value, needed, todo in _facts(block):
                if not holds:
                    raise RecipeError(f"{where}.block.{name}", value, needed, todo)
        if self.memory:
            needed = "rows of every layer would have to be kept for the way back"
            raise RecipeError(f"{where}.memory", self.memory, needed, "use 0, or Stack")

    def out_width(self, width: int) -> int:
        return 2 * width

    def build(self, width: int) -> "ReversibleLayer":
        return ReversibleLayer(self, width)


def _facts(block: Block) -> tuple[tuple[bool, str, object, str, str], ...]:
    cross = block.cross and type(block.cross).__name__
    return (
        (block.place == "pre", "place", block.place, "a norm behind the sum cannot be computed back", 'use "pre"'),
        (block.ffn is not None, "ffn", None, "the second stream is made by it", "use FeedForward"),
        (block.residual, "residual", False, "what a branch is added to is computed back from the sum", "use true"),
        (block.cross is None, "cross", cross, "a third branch has no stream of its own", "use None"),
    )


class ReversibleLayer(StackLayer):
    """Weights of `Reversible`, and its way back, which computes activations again."""

    def __init__(self, spec: Reversible, width: int):
        super().__init__(spec, width)
        self.inverts = True  # False: everything is kept, as autograd does by itself

    def forward(self, x: Tensor, context: Context, layers: bool = False) -> Hidden:
        """[B, L, D] -> `Hidden`; only the outputs of the last block are kept for the way back."""
        past, depth = context.past, len(self.blocks)
        inner = context if past is None else context.after(past.token_info)
        shown = layers or inner.capture is not None or inner.carry or past is not None
        some = inner.positions if not shown and _few(inner) else None
        inner = inner.replace(positions=None)
        whole = depth if some is None else depth - 1  # blocks that give every token
        one, two, done, joined = x, x, 0, None
        if self.inverts and torch.is_grad_enabled() and whole and not shown:
            trained = [parameter for parameter in self.blocks[:whole].parameters() if parameter.requires_grad]
            joined, done = cast(Tensor, _Inverted.apply(self, whole, inner, x, *trained)), whole
            one, two = joined.chunk(2, -1)
        kept = [torch.cat([x, x], -1)] if layers else []
        carries: list[Cache] = []
        for layer in range(done, depth):
            view = self.view(layer, inner, some if layer == whole else None)
            one, two, carry = step(self.block(layer), one, two, view, past.layers[layer] if past else None)
            joined = torch.cat([one, two], -1) if layers or layer == depth - 1 else None
            if layers and joined is not None:
                kept.append(joined)
            if carry is not None:
                carries.append(carry)
        assert joined is not None
        memory = Memory(tuple(carries), inner.memory) if carries else None
        return Hidden(self.finish(joined, inner, some), tuple(kept), memory)

    def block(self, layer: int) -> BlockLayer:
        return cast(BlockLayer, self.blocks[layer])

    def view(self, layer: int, context: Context, places: Tensor | None = None) -> Context:
        capture = None if context.capture is None else context.capture.at(layer)
        return context.at(layer).replace(positions=places, capture=capture)


def _few(context: Context) -> bool:
    """Whether leaving out what nobody reads saves more than it costs to keep the last block."""
    return context.positions is not None and 2 * len(context.positions) <= context.query.position.numel()


def step(
    block: BlockLayer, one: Tensor, two: Tensor, context: Context, past: Tensor | Cache | None = None
) -> tuple[Tensor, Tensor, Cache | None]:
    """(x1, x2) -> (y1, y2), at `context.places` where these are given."""
    branch, carry = block.mix(two, past, context)
    one, two, context = context.pick(one), context.pick(two), context.picked()
    one = one + branch
    return one, two + block.feed(one, context), carry


class _Inverted(torch.autograd.Function):
    """The first `count` blocks: x [B, L, D] -> [y1; y2], which is all that is saved."""

    @staticmethod
    def forward(
        ctx: Any, stack: ReversibleLayer, count: int, context: Context, x: Tensor, *trained: nn.Parameter
    ) -> Tensor:
        context = context.replace(replay={} if context.replay is None else context.replay)
        ctx.stack, ctx.count, ctx.context, ctx.trained, ctx.precision = stack, count, context, trained, precision(x)
        one = two = x
        with ctx.precision():
            for layer in range(count):
                one, two, _ = step(stack.block(layer), one, two, stack.view(layer, context))
        joined = torch.cat([one, two], -1)
        ctx.save_for_backward(joined)
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        stack: ReversibleLayer = ctx.stack
        (joined,), (d_one, d_two) = ctx.saved_tensors, grads[0].chunk(2, -1)
        one, two = joined.chunk(2, -1)
        sums = _Sums(ctx.trained, ctx.precision)
        for layer in reversed(range(ctx.count)):
            block, view = stack.block(layer), stack.view(layer, ctx.context)
            inner, outer = (block.ffn, block.ffn_norm), (block.mixer, block.mixer_norm)
            branch, gradient = sums.back(partial(block.feed, context=view), one, d_two, inner)
            two, d_one = two - branch, d_one + gradient
            branch, gradient = sums.back(lambda x, b=block, v=view: b.mix(x, None, v)[0], two, d_one, outer)
            one, d_two = one - branch, d_two + gradient
        return None, None, None, d_one + d_two, *(sums.sums.get(id(parameter)) for parameter in ctx.trained)


class _Sums:
    """Gradients of parameters, summed over the layers that share them."""

    def __init__(self, trained: Iterable[nn.Parameter], precision: Precision):
        self.trained, self.precision = {id(parameter) for parameter in trained}, precision
        self.sums: dict[int, Tensor] = {}

    def back(
        self, branch: Callable[[Tensor], Tensor], x: Tensor, gradient: Tensor, parts: Iterable[nn.Module | None]
    ) -> tuple[Tensor, Tensor]:
        """The branch of x once more, and the gradient of x given that of the branch."""
        own = [p for part in parts if part is not None for p in part.parameters() if id(p) in self.trained]
        with torch.enable_grad(), self.precision():  # that of the forward pass; the way back has none of its own
            x = x.detach().requires_grad_()
            y = branch(x)
        to_x, *to_own = torch.autograd.grad(y, (x, *own), gradient, allow_unused=True)
        for parameter, each in zip(own, to_own, strict=True):
            if each is not None:
                before = self.sums.get(id(parameter))
                self.sums[id(parameter)] = each if before is None else before + each
        return y.detach(), torch.zeros_like(x) if to_x is None else to_x


def precision(x: Tensor) -> Precision:
    """Today's autocast for a pass to come. Casts of weights are not kept: those made without gradients have none."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device):
        return contextlib.nullcontext
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype, enabled, cache_enabled=False)
