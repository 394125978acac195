"""One layer: mix tokens, then transform each."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from clozeworks.batch import Carry, Context, Keys
from clozeworks.errors import RecipeError
from clozeworks.key import add_dropped
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.norm import LayerNorm
from clozeworks.spec import Spec


@dataclass(slots=True)
class Block(Spec):
    """Residual branches around a mixer, optionally cross-attention, and a feed-forward part.

    post (Vaswani 2017):  x <- norm(x + dropout(branch(x)))
    pre  (Xiong 2020):    x <- x + dropout(branch(norm(x)))
    """

    mixer: Mixer
    ffn: FeedForward | None
    cross: Mixer | None = None
    norm: LayerNorm = field(default_factory=LayerNorm)
    place: Literal["post", "pre"] = "post"
    dropout: float = 0.1

    def check(self, where: str) -> None:
        if not 0 <= self.dropout < 1:
            raise RecipeError(f"{where}.dropout", self.dropout, "a rate in [0, 1) is needed", "use 0.1 or 0")

    def build(self, width: int) -> "BlockLayer":
        return BlockLayer(self, width)


class BlockLayer(nn.Module):
    def __init__(self, spec: Block, width: int):
        super().__init__()
        self.pre, self.dropout = spec.place == "pre", spec.dropout
        self.mixer, self.mixer_norm = spec.mixer.build(width), spec.norm.build(width)
        self.cross = spec.cross.build(width) if spec.cross else None
        self.cross_norm = spec.norm.build(width) if spec.cross else None
        self.ffn = spec.ffn.build(width) if spec.ffn else None
        self.ffn_norm = spec.norm.build(width) if spec.ffn else None

    def forward(
        self,
        x: Tensor,
        past: Tensor | Carry | None,
        source: Keys | None,
        context: Context,
        asked: Tensor | None = None,
        asking: Context | None = None,
    ) -> tuple[Tensor, Tensor | None, Carry | None, Keys | None]:
        """x [B, L, D] -> the same, or [W, D] at `context.places`: after the mixer no token needs another.

        `past` are the older rows of this layer, `source` cross-attention's keys if already projected. `asked` [B, P, D]
        is a second stream, which looks at the same rows as the first, projected once for both, in its own context.
        """
        query = self.mixer_norm(x) if self.pre else x
        memory = None if past is None else self._memory(query, past)
        if asked is not None and asking is not None:
            rows = query if memory is None else memory
            memory = self.mixer.extend(None, rows) if isinstance(rows, Tensor) else rows
            asked = self._through(asked, self.mixer_norm(asked) if self.pre else asked, memory, None, asking)[0]
            if context.places is not None and not len(context.places):
                return x.new_zeros(0, x.shape[-1]), asked, memory if context.carry else None, None
        x, carry, keys = self._through(x, query, memory, source, context)
        return x, asked, carry, keys

    def _through(
        self, x: Tensor, query: Tensor, memory: Tensor | Carry | None, source: Keys | None, context: Context
    ) -> tuple[Tensor, Carry | None, Keys | None]:
        mixed, carry = self.mixer(query, memory, context.at("mixer"))
        x, mixed, context = context.pick(x), context.pick(mixed), context.picked()
        x = self._join(x, mixed, self.mixer_norm, context.at("mixer.out"))
        keys = None
        if self.cross is not None and self.cross_norm is not None:
            across = context.across()
            assert context.source is not None
            keys = source or self.cross.extend(None, context.source.hidden)
            mixed, _ = self.cross(self.cross_norm(x) if self.pre else x, keys, across.at("cross"))
            x = self._join(x, mixed, self.cross_norm, context.at("cross.out"))
        if self.ffn is not None and self.ffn_norm is not None:
            inner = self.ffn(self.ffn_norm(x) if self.pre else x, context.at("ffn").key)
            x = self._join(x, inner, self.ffn_norm, context.at("ffn.out"))
        return x, carry, keys if context.carry else None

    def _memory(self, query: Tensor, past: Tensor | Carry) -> Tensor | Carry:
        if isinstance(past, Tensor):  # hidden rows: normalised and projected anew, with today's weights
            return torch.cat([self.mixer_norm(past) if self.pre else past, query], 1)
        return self.mixer.extend(past, query)

    def _join(self, x: Tensor, branch: Tensor, norm: nn.Module, context: Context) -> Tensor:
        x = add_dropped(x, branch, self.dropout, context.key)
        return x if self.pre else norm(x)
