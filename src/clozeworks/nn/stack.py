"""Depth: blocks one after another, sharing, memory."""

import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clozeworks.core.batch import Hidden
from clozeworks.core.bounds import Bound, Count, Natural, Rate
from clozeworks.core.cache import Cache
from clozeworks.core.context import Context, Memory
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.block import Block, BlockLayer
from clozeworks.nn.kernels.variational_dropout import drop_variationally
from clozeworks.nn.mixer import BiasLayer, Mixer
from clozeworks.nn.norm import LayerNorm

DEEPEST = 10_000  # layers: far beyond any model, far below what a check or a count would take minutes for


@dataclass(slots=True)
class Share(Spec):
    """How many different sets of weights the layers use; layer i of L takes set i * groups // L (Lan et al. 2019).

    None: every layer its own. 1: all the same. The norm that follows a part goes with it, cross-attention with
    attention. Layers that share have one shape; what they do with it may differ (heads, windows, place of the norm).
    `bias`: of what is added to scores only the vectors that belong to no token or distance (u and v of Dai et al. 2019,
    whose code has one pair for all layers).
    """

    attention: Count | None = None
    ffn: Count | None = None
    bias: Count | None = None


@dataclass(slots=True)
class Stack(Spec):
    """`depth` blocks; a tuple of blocks is cycled over the depth. Of depth 0 is an encoder that is a table of words.

    `memory` > 0 keeps that many hidden rows of every layer's input between calls (Dai et al. 2019): older rows are
    seen, never trained. Where `context.carry` asks for it these are keys and values, which are the same while no weight
    changes and need not be projected again. At the `start` of a text there are none, as in the authors' code, or as
    many rows of zeros, which are attended to like others. Of mixers with a state that is kept, whatever the number.
    `norm` is applied once after the last block (pre-norm stacks need it), then `dropout`, with `locked` by one mask for
    all tokens of a text.

    x_l = block_l(x_{l-1}), [B, L, D] -> [B, L, D].
    """

    streams: ClassVar[int] = 1  # of vectors a token: with two, one does not know the token that it stands for
    directions: ClassVar[int] = 1  # that a text is read: with two, from its beginning and from its end
    resumable: ClassVar[bool] = True  # a pass may go through some blocks now and through the others later
    depth: Annotated[int, Bound(0, DEEPEST)]
    block: Block | tuple[Block, ...]
    share: Share = field(default_factory=Share)
    memory: Natural = 0
    norm: LayerNorm | None = None
    dropout: Rate = 0.0
    initial_memory: Literal["empty", "zeros"] = "empty"
    variational: bool = False

    def block_at(self, layer: int) -> Block:
        return self.block[layer % len(self.block)] if isinstance(self.block, tuple) else self.block

    def mixers(self) -> Iterator[Mixer]:
        """That of each block, from the first layer on, a cycled one once."""
        blocks = self.block if isinstance(self.block, tuple) else (self.block,)
        return (block.mixer for block in blocks[: max(self.depth, 0)])

    def check(self, where: str) -> None:
        """Raise `RecipeError` for a depth, a share, a memory or a rate that cannot be."""
        if self.block == ():
            raise RecipeError(f"{where}.block", "()", "at least one block is needed", "give a Block")
        for name in ("attention", "ffn", "bias"):
            groups = getattr(self.share, name)
            if groups is not None and (groups < 1 or self.depth % groups):
                divisors = [str(n) for n in range(1, self.depth + 1) if self.depth % n == 0]
                todo = "use " + " or ".join(filter(None, [", ".join(divisors[:-1]), divisors[-1]]))
                raise RecipeError(f"{where}.share.{name}", groups, f"depth {self.depth} is not divisible by it", todo)
        if self.initial_memory == "zeros" and self.stateful:
            raise RecipeError(f"{where}.initial_memory", "zeros", "a state of nothing is zeros already", 'use "empty"')
        for mixer in self.mixers():
            if self.share.bias is not None and not _common(mixer):
                needed = f"{type(mixer).__name__} adds nothing to its scores that could be shared so"
                raise RecipeError(f"{where}.share.bias", self.share.bias, needed, "use None")
            if self.memory and not (self.stateful or "rows" in mixer.takes):
                raise RecipeError(f"{where}.memory", self.memory, f"{type(mixer).__name__} takes no memory", "use 0")

    @property
    def stateful(self) -> bool:
        """Whether every block carries a state instead of rows."""
        return self.depth > 0 and all("state" in mixer.takes for mixer in self.mixers())

    def sees(self, mixer: Mixer) -> frozenset[str]:
        """The kinds of visibility that one of its mixers can be used for."""
        return mixer.honours

    def layers(self, width: int) -> Iterator[tuple[Block, int]]:
        """The block of each layer, and how wide its input is."""
        for layer in range(min(self.depth, DEEPEST) if self.block else 0):
            block = self.block_at(layer)
            yield block, width
            width = block.out_width(width)

    def fit(self, where: str, width: int) -> None:
        """Raise `RecipeError` if it cannot be built so wide."""
        for block, wide in self.layers(width):
            block.fit(f"{where}.block", wide)
        if isinstance(self.block, tuple) and self.share != Share():
            try:
                with torch.device("meta"):  # the shapes alone
                    StackLayer(self, width)
            except RecipeError as error:
                raise RecipeError(f"{where}.{error.where}", error.given, error.needed, error.todo) from None

    def out_width(self, width: int) -> int:
        for block, wide in self.layers(width):
            width = block.out_width(wide)
        return width

    def build(self, width: int) -> "StackLayer":
        return StackLayer(self, width)


class StackLayer(nn.Module):
    """Weights of `Stack`: its blocks, some of them shared."""

    def __init__(self, spec: Stack, width: int):
        super().__init__()
        self.memory, self.start, self.dropout, self.locked = (
            spec.memory,
            spec.initial_memory,
            spec.dropout,
            spec.variational,
        )
        self.stateful = spec.stateful
        self.blocks = nn.ModuleList(block.build(wide) for block, wide in spec.layers(width))
        self.norm = spec.norm.build(spec.out_width(width)) if spec.norm else None
        self.share, self.common = spec.share, {name for mixer in spec.mixers() for name in _common(mixer)}
        self.recompute = False  # keep only the input of each block, and compute the rest again on the way back
        self.tie()

    def tie(self) -> None:
        """Share Parameters, not modules: layers keep their own windows, dropout and names."""
        depth = len(self.blocks) or 1
        attention = ("mixer", "mixer_norm", "cross", "cross_norm")
        for groups, parts in ((self.share.attention, attention), (self.share.ffn, ("ffn", "ffn_norm"))):
            size = depth // (groups or depth)  # layers that share
            for layer in range(len(self.blocks)):
                leader = layer - layer % size
                for part in parts:
                    tie(getattr(self.blocks[leader], part), getattr(self.blocks[layer], part), layer)
        if self.share.bias is not None:
            biases = [cast(BiasLayer, block.mixer.bias) for block in cast(Iterable[BlockLayer], self.blocks)]
            for layer, bias in enumerate(biases):
                tie(biases[layer - layer % (depth // self.share.bias)], bias, layer, self.common)

    def forward(self, x: Tensor, context: Context, layers: bool = False) -> Hidden:
        """[B, L, D] -> `Hidden`; with `layers`, of every block."""
        past = context.past
        if past is None and self.memory and self.start == "zeros":
            past = self.zeros(x, context)
        if self.stateful:
            inner = context.replace(carry=context.carry or self.memory > 0)
        else:
            inner = context if past is None else context.after(past.token_info)
        unread = 0 if inner.keep is None else max(x.shape[1] - inner.keep, 0)
        kept: list[Tensor] = [x] if layers else []
        carries: list[Tensor | Cache] = []
        crosses: list[Cache | None] = []
        asked, questions = self.ask(inner)
        some = None if layers or not self.blocks else inner.positions
        for depth, block in enumerate(self.blocks):
            before = past.layers[depth] if past else None
            source = past.cross[depth] if past and past.cross else None
            entered = x
            places = some if depth == len(self.blocks) - 1 else None
            capture = None if inner.capture is None else inner.capture.at(depth)
            view = inner.at(depth).replace(positions=places, capture=capture)
            asking = None if questions is None else questions.replace(key=view.at("asked").key)
            if self.recompute and torch.is_grad_enabled():
                x, asked, carry, cross = checkpoint(  # the key repeats what is dropped, not torch's generator
                    block, x, before, source, view, asked, asking, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x, asked, carry, cross = block(x, before, source, view, asked, asking)
            if self.memory and carry is None:
                mine = entered[:, : inner.keep]
                rows = torch.cat([before, mine], 1) if isinstance(before, Tensor) else mine
                carries.append(rows[:, -self.memory :].detach())
            elif carry is not None:
                carries.append(carry if not self.memory else carry.tail(self.memory, unread))
                crosses.append(cross)
            if layers:
                kept.append(x)
        x = self.finish(x, inner, some)
        memory = None
        if carries:
            side = inner.memory
            if self.memory:
                side = side.each(lambda value: value[:, : value.shape[1] - unread])
                side = side.tail(0 if self.stateful else min(self.memory, side.position.shape[1]))
            memory = Memory(tuple(carries), side, tuple(crosses) if any(crosses) else None)
        return Hidden(x, tuple(kept), memory, None if asked is None else self.answer(asked, inner))

    def run(self, x: Tensor, context: Context, first: int, end: int) -> Tensor:
        """A part of a pass, through the blocks from `first` to before `end`, with nothing read before and nothing kept:
        parts one after another are the pass to the bit."""
        last = len(self.blocks) - 1
        for depth in range(first, end):
            view = context.at(depth).replace(positions=context.positions if depth == last else None, capture=None)
            x = self.blocks[depth](x, None, None, view)[0]
        return self.finish(x, context, context.positions) if end > last else x

    def finish(self, x: Tensor, context: Context, places: Tensor | None) -> Tensor:
        """What follows the last block; vectors of some places [W, D] are put back among all, [B, L, D]."""
        x = x if self.norm is None else self.norm(x)
        if self.dropout:
            last = context.replace(positions=places).at("out")
            x = (
                drop_variationally(x, self.dropout, last)
                if self.locked
                else dropout(x, self.dropout, last.picked().key)
            )
        if places is None:
            return x
        whole = x.new_full((context.query.position.numel(), x.shape[-1]), math.nan)
        return whole.index_copy(0, places, x).view(*context.query.position.shape, x.shape[-1])

    def ask(self, context: Context) -> tuple[Tensor | None, Context | None]:
        """A second stream before the first block, and what it may see; where there is none, None."""
        return None, None

    def answer(self, asked: Tensor, context: Context) -> Tensor:
        """[T, D]: the second stream after the last block."""
        return asked

    def zeros(self, x: Tensor, context: Context) -> Memory:
        """What a stack remembers that has read nothing, and starts with zeros: before each row, in its document."""
        before = torch.arange(-self.memory, 0, device=x.device).expand(len(x), -1)
        position = before if context.backward is None else torch.where(context.backward[:, None], -before, before)
        document = context.query.document[:, :1].expand_as(before)
        segment = None if context.query.segment is None else torch.zeros_like(before)
        rows = x.new_zeros(len(x), self.memory, x.shape[-1])
        return Memory((rows,) * len(self.blocks), TokenInfo(position, document, before, before, segment))


def _common(mixer: Mixer) -> tuple[str, ...]:
    """The parameters of what it adds to scores that layers may have in common."""
    return getattr(getattr(mixer, "bias", None), "common", ())


def tie(leader: nn.Module | None, follower: nn.Module | None, layer: int, only: Container[str] | None = None) -> None:
    """Give `follower` the parameters of `leader`, or `only` some of them; shapes that differ are refused by name."""
    if leader is follower:
        return
    given, own = ({} if part is None else dict(part.named_parameters()) for part in (leader, follower))
    for name in given | own:
        if only is not None and name not in only:
            continue
        shapes = [tuple(each[name].shape) if name in each else "nothing" for each in (given, own)]
        if shapes[0] != shapes[1]:
            needed = f"{shapes[0]} is shared with it"
            todo = "share only blocks of one shape"
            raise RecipeError(f"share, layer {layer}, {name}", shapes[1], needed, todo)
        assert follower is not None
        path, _, last = name.rpartition(".")
        setattr(follower.get_submodule(path), last, given[name])
