"""One layer: mix tokens, then transform each."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Rate
from clozeworks.core.cache import Cache, RNNState
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, add_dropped, dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.norm import LayerNorm


@dataclass(slots=True)
class Block(Spec):
    """Residual branches around a mixer, optionally cross-attention, and a feed-forward part.

    post (Vaswani 2017):  x <- norm(x + dropout(branch(x)))
    pre  (Xiong 2020):    x <- x + dropout(branch(norm(x)))

    Without `residual` a branch takes the place of x, x <- norm(dropout(branch(x))), and may have another width; without
    a norm, norm(x) is x. Stacks of recurrent layers are so, often with no residual around the first alone (Peters et
    al. 2018).

    [B, L, D] -> [B, L, D]; cost is that of the mixer, and 2 L D F for a feed-forward part of F units.
    """

    mixer: Mixer
    ffn: FeedForward | None
    cross: Mixer | None = None
    norm: LayerNorm | None = field(default_factory=LayerNorm)
    place: Literal["post", "pre"] = "post"
    dropout: Rate = 0.1
    residual: bool = True

    def check(self, where: str) -> None:
        if self.cross is not None and "carry" not in self.cross.takes:
            name = type(self.cross).__name__
            raise RecipeError(f"{where}.cross", name, "it takes no rows but its own", "use Attention")
        if self.cross is not None and self.cross.across:
            needed = "it writes and reads the source by itself, in the place of a mixer"
            raise RecipeError(f"{where}.cross", type(self.cross).__name__, needed, "use it as mixer, with cross=None")

    def fit(self, where: str, width: int) -> None:
        """Raise `RecipeError` if it cannot be built so wide."""
        self.mixer.fit(f"{where}.mixer", width)
        if self.residual and self.out_width(width) != width:
            needed = f"width {self.out_width(width)} cannot be added to width {width}"
            raise RecipeError(f"{where}.residual", True, needed, f"use false, or a mixer that gives {width}")
        if self.cross is not None:
            self.cross.fit(f"{where}.cross", self.out_width(width))

    def out_width(self, width: int) -> int:
        return self.mixer.out_width(width)

    @property
    def eps(self) -> float:
        """Of its norms."""
        if self.norm is None:
            raise RecipeError("encoder.stack.block.norm", None, "a norm is needed here", "use LayerNorm")
        return self.norm.eps

    def build(self, width: int) -> "BlockLayer":
        return BlockLayer(self, width)


class BlockLayer(nn.Module):
    """Weights of `Block`: its branches, each with its norm."""

    def __init__(self, spec: Block, width: int):
        super().__init__()
        self.pre, self.dropout, self.residual = spec.place == "pre", spec.dropout, spec.residual
        norm, inner = spec.norm, spec.out_width(width)
        self.mixer = spec.mixer.build(width)
        self.mixer_norm = norm.build(width if self.pre else inner) if norm else nn.Identity()
        self.cross = spec.cross.build(inner) if spec.cross else None
        self.cross_norm = (norm.build(inner) if norm else nn.Identity()) if spec.cross else None
        self.ffn = spec.ffn.build(inner) if spec.ffn else None
        self.ffn_norm = (norm.build(inner) if norm else nn.Identity()) if spec.ffn else None

    def forward(
        self,
        x: Tensor,
        past: Tensor | Cache | None,
        source: Cache | None,
        context: Context,
        asked: Tensor | None = None,
        asking: Context | None = None,
    ) -> tuple[Tensor, Tensor | None, Cache | None, Cache | None]:
        """x [B, L, D] -> the same, or [W, D] at `context.places`: after the mixer no token needs another.

        `past` are the older rows of this layer, `source` cross-attention's keys if already projected. `asked` [B, P, D]
        is a second stream, which looks at the same rows as the first, projected once for both, in its own context.
        """
        query = self.mixer_norm(x) if self.pre else x
        if isinstance(past, Tensor) and asked is None and not context.carry:
            reach = self.mixer.reach(context)
            if reach is not None and reach < past.shape[1]:
                past, context = past[:, past.shape[1] - reach :], context.recent(reach)
        memory = None if past is None else self._memory(query, past)
        if asked is not None and asking is not None:
            rows = query if memory is None else memory
            memory = self.mixer.extend(None, rows) if isinstance(rows, Tensor) else rows
            asked = self._through(asked, self.mixer_norm(asked) if self.pre else asked, memory, None, asking)[0]
            if context.positions is not None and not len(context.positions) and context.capture is None:
                return x.new_zeros(0, x.shape[-1]), asked, memory if context.carry else None, None
        x, carry, keys = self._through(x, query, memory, source, context)
        return x, asked, carry, keys

    def _through(
        self, x: Tensor, query: Tensor, memory: Tensor | Cache | None, source: Cache | None, context: Context
    ) -> tuple[Tensor, Cache | None, Cache | None]:
        # Cross-attention takes rows in their batch, so that where it is there, the picking waits for it.
        mixing = context if self.cross is None else context.replace(positions=None)
        mixed, carry = self.mixer(query, memory, mixing.at("mixer"))
        x, mixed, mixing = mixing.pick(x), mixing.pick(mixed), mixing.picked()
        x = self._join(x, mixed, self.mixer_norm, mixing.at("mixer.out"))
        keys = None
        if self.cross is not None and self.cross_norm is not None:
            across = context.across()
            assert context.source is not None
            keys = source or self.cross.extend(None, context.source.hidden)
            mixed, _ = self.cross(self.cross_norm(x) if self.pre else x, keys, across.at("cross"))
            x, mixed = context.pick(x), context.pick(mixed)
            x = self._join(x, mixed, self.cross_norm, context.picked().at("cross.out"))
        context = context.picked()
        if self.ffn is not None and self.ffn_norm is not None:
            inner = self.ffn(self.ffn_norm(x) if self.pre else x, context.at("ffn").key)
            x = self._join(x, inner, self.ffn_norm, context.at("ffn.out"))
        return x, carry, keys if context.carry else None

    def mix(self, x: Tensor, past: Tensor | Cache | None, context: Context) -> tuple[Tensor, Cache | None]:
        """The first branch alone, with its norm before it: what is to be added, at `context.places` if given."""
        query = self.mixer_norm(x)
        memory = None if past is None else self._memory(query, past)
        mixed, carry = self.mixer(query, memory, context.at("mixer"))
        key = context.picked().at("mixer.out").key
        return dropout(context.pick(mixed), self.dropout, key).to(x.dtype), carry

    def feed(self, x: Tensor, context: Context) -> Tensor:
        """The last branch alone, in the same way."""
        assert self.ffn is not None
        assert self.ffn_norm is not None
        inner = self.ffn(self.ffn_norm(x), context.at("ffn").key)
        return dropout(inner, self.dropout, context.at("ffn.out").key).to(x.dtype)

    def _memory(self, query: Tensor, past: Tensor | Cache) -> Tensor | Cache:
        if isinstance(past, Tensor):  # hidden rows: normalised and projected anew, with today's weights
            return torch.cat([self.mixer_norm(past) if self.pre else past, query], 1)
        return past if isinstance(past, RNNState) else self.mixer.extend(past, query)

    def _join(self, x: Tensor, branch: Tensor, norm: nn.Module, context: Context) -> Tensor:
        x = (add_dropped if self.residual else _dropped)(x, branch, self.dropout, context.key)
        return x if self.pre else norm(x)


def _dropped(x: Tensor, branch: Tensor, rate: float, key: DropoutKey | None) -> Tensor:
    """The branch instead of what it was made of."""
    return dropout(branch, rate, key)
