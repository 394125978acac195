"""Recurrence as a mixer: each token is read with the state that those before it left."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.cache import Cache, RNNState
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.cell import Cell, CellLayer, run, step_by_step
from clozeworks.nn.kernels.documents import Documents, documents_of
from clozeworks.nn.mixer import Mixer, MixerLayer


@dataclass(slots=True)
class Recurrent(Mixer):
    """A GRU (Cho et al. 2014) or LSTM (Hochreiter & Schmidhuber 1997) along each document: h_t = cell(x_t, h_{t-1}).

    Shapes [B, L, D] -> [B, L, D], h_0 = 0. O(L D^2), one step after another: documents of all rows are read side by
    side, the longest first, by torch's kernel for sequences of different lengths.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    untraceable: ClassVar[str | None] = "it reads a token after another, as many steps as the text is long"
    takes: ClassVar[frozenset[str]] = frozenset({"self", "carry"})
    cell: Cell = "gru"

    def build(self, width: int) -> MixerLayer:
        return RecurrentLayer(self.cell, width)


@dataclass(slots=True)
class BothWays(Recurrent):
    """The same from both sides (Schuster & Paliwal 1997): h_t = [forth_t; back_t], each of width D / 2.

    The way back begins at the last token of each document, wherever that stands in its row.

    [B, L, D] -> [B, L, D]. O(L D^2), step after step.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"full"})
    takes: ClassVar[frozenset[str]] = frozenset({"self"})

    def fit(self, where: str, width: int) -> None:
        if width % 2:
            needed = f"each way has half the width, and {width} is odd"
            raise RecipeError(where, type(self).__name__, needed, "use an even width")

    def build(self, width: int) -> MixerLayer:
        return BothWaysLayer(self.cell, width)


@dataclass(frozen=True, slots=True)
class Read(Cache):
    """What was given for the last tokens that were read, [B, n, D], and the state behind them."""

    out: Tensor
    state: RNNState

    def rows(self, index: Tensor) -> "Read":
        return Read(self.out[index], self.state.rows(index))

    def tail(self, count: int, unread: int = 0) -> "Read":
        raise ValueError("a state holds all that was read, not the last tokens of it")


class RecurrentLayer(MixerLayer):
    """Weights of a recurrent mixer that reads one way."""

    def __init__(self, cell: Cell, width: int):
        super().__init__()
        self.cell = CellLayer(cell, width, width)

    def extend(self, past: Cache | None, x: Tensor) -> Read:
        assert past is None or isinstance(past, Read)
        documents = Documents.rows(x)
        state = self.cell.zeros(x, len(x)) if past is None else past.state
        out, (state,) = run((self.cell,), documents.pack(x), documents.counts, (state,))
        return Read(documents.unpack(out), state)

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, Read | None]:
        """[B, L, D] -> [B, L, D], each document from its first token on, or from the state that was carried."""
        if context.kind == "order":
            raise ValueError("a state cannot hide what an order hides")
        if isinstance(memory, Read):
            return memory.out, memory if context.carry else None
        if context.carry:
            read = self.extend(None, query)
            return read.out, read
        documents = documents_of(context)
        x = documents.pack(query)
        state = self.cell.zeros(x, len(documents))
        if context.backend == "dense":
            out, _ = step_by_step(self.cell.step, self.cell.inner(x), documents.counts, state)
        else:
            out, _ = run((self.cell,), x, documents.counts, (state,))
        return documents.unpack(out), None


class BothWaysLayer(MixerLayer):
    """Weights of `BothWays`: a recurrence from the beginning, and one from the end."""

    carries: ClassVar[bool] = False

    def __init__(self, cell: Cell, width: int):
        super().__init__()
        self.forth, self.back = (CellLayer(cell, width, width // 2) for _ in range(2))

    def extend(self, past: Cache | None, x: Tensor) -> Cache:
        raise ValueError("what is read from its end has no state to continue from")

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, None]:
        if context.kind != "full" or memory is not None:
            raise ValueError(f"text is read from both sides, which {context.kind} visibility and memories do not allow")
        documents = documents_of(context)
        x = documents.pack(query)
        state = self.forth.zeros(x, len(documents))
        if context.backend == "dense":
            ways = (
                step_by_step(cell.step, cell.inner(x), documents.counts, state, cell is self.back)[0]
                for cell in (self.forth, self.back)
            )
            return documents.unpack(torch.cat(list(ways), -1)), None
        out, _ = run((self.forth, self.back), x, documents.counts, (state, state))
        return documents.unpack(out), None
