"""A window of the last words as one vector: what a neural language model read before there was recurrence."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.bounds import Bound, Count
from clozeworks.core.cache import Cache, ConvCache
from clozeworks.core.context import Context
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixer import Mixer, MixerLayer

NOBODY = -3  # the document of what lies before a row


@dataclass(slots=True)
class Ngram(Mixer):
    """The last n - 1 vectors side by side, and a hidden layer above them (Bengio et al. 2003, 2).

    x_t = [v_t; v_{t-1}; ...; v_{t-n+2}];  out_t = tanh(d + H x_t), or with `direct` [x_t; tanh(d + H x_t)]

    The newest comes first, and what stands before the beginning of a text is zero. A head with a table of its own and
    a bias then gives y = b + W x + U tanh(d + H x), W being the direct connections. Before the prediction of word t the
    token t - 1 is the newest, so that a model of `order` n sees n - 1 words.

    Shapes [B, L, D] -> [B, L, h], or with `direct` [B, L, (n - 1) D + h]. O(L n D h).
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    order: Annotated[int, Bound(2, 1 << 20)]
    hidden: Count
    direct: bool = False

    def out_width(self, width: int) -> int:
        return self.hidden + (self.order - 1) * width * self.direct

    def build(self, width: int) -> "NgramLayer":
        return NgramLayer(self, width)


class NgramLayer(MixerLayer):
    """Weights of `Ngram`: H [h, (n - 1) D] and d."""

    def __init__(self, spec: Ngram, width: int):
        super().__init__()
        self.words, self.direct = spec.order - 1, spec.direct
        self.hidden = Linear(self.words * width, spec.hidden)

    def extend(self, past: Cache | None, x: Tensor) -> ConvCache:
        if past is None:
            return ConvCache(x)
        assert isinstance(past, ConvCache)
        return ConvCache(torch.cat([past.tail(self.words - 1).last, x], 1))

    def reach(self, context: Context) -> int:
        return self.words - 1

    def forward(
        self, query: Tensor, memory: Tensor | Cache | None, context: Context
    ) -> tuple[Tensor, ConvCache | None]:
        if context.kind == "order":
            raise ValueError("a window of the words before cannot hide what an order hides")
        rows = query if memory is None else memory
        tail = self.extend(None, rows) if isinstance(rows, Tensor) else rows
        assert isinstance(tail, ConvCache)
        x = context.pick(self._side_by_side(tail.last, query.shape[1], context))
        hidden = torch.tanh(self.hidden(x))
        out = torch.cat([x.to(hidden.dtype), hidden], -1) if self.direct else hidden
        return out, tail if context.carry else None

    def _side_by_side(self, x: Tensor, length: int, context: Context) -> Tensor:
        """[B, M, D], of which the queries are the last -> [B, L, (n - 1) D]."""
        before = self.words - 1
        near = F.pad(x, (0, 0, before, 0))[:, -(length + before) :]
        newest_first = [near[:, before - back : before - back + length] for back in range(self.words)]
        if context.layout is None or not context.layout.plain:
            document = context.memory.document[:, -x.shape[1] :]
            document = F.pad(document, (before, 0), value=NOBODY)[:, -(length + before) :]
            seen = (document.unfold(1, self.words, 1) == context.query.document[:, :, None]).flip(-1)[..., None]
            newest_first = [part * seen[:, :, back] for back, part in enumerate(newest_first)]
        return torch.cat(newest_first, -1)
