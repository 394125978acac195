"""A recurrent reader of what is written that looks at a source: all of it in one vector, or anew at every step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from clozeworks.core.cache import Cache, RNNState
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.cell import Cell, CellLayer, run
from clozeworks.nn.kernels.documents import Documents, documents_of, find_documents
from clozeworks.nn.kernels.linear import Linear, linear
from clozeworks.nn.mixer import Mixer, MixerLayer
from clozeworks.nn.score import Score, attend


@dataclass(slots=True)
class RecurrentAcross(Mixer):
    """A recurrent decoder: s_i from what was written and from a context c_i of the source h_1 ... h_S.

    `score` = None: one context for all steps, c = [forth_S; back_1], the ends of both ways (Cho et al. 2014). With one,
    c_i = sum_j a_ij h_j, a_i = softmax_j(score(query_i, h_j)) (`score.attend`). `order` says which state asks:

    before (Bahdanau et al. 2015, A):  c_i asked by s_{i-1};  s_i = cell([y_i; c_i], s_{i-1});
                                       out_i = maxout(W [s_i; y_i; c_i] + b), the larger of two units
    after (Luong et al. 2015, 3):      s_i = cell(y_i, s_{i-1});  c_i asked by s_i;  out_i = tanh(W [c_i; s_i] + b)

    y_i is the vector of the token before the one that is predicted, and s_0 = tanh(W back_1 + b). Shapes [B, L, D] ->
    [B, L, D], the source [B, S, D] of a part that reads both ways. O(L (D^2 + S D)). Where no step waits for the
    context of the one before it, which is everywhere but in `before` with a score, all steps are made by one call of
    torch's kernel. Departures: y, s and c have one width; `after` feeds no attended vector back into the cell, since
    then every step would have to wait.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    untraceable: ClassVar[str | None] = "it reads a token after another, as many steps as the text is long"
    takes: ClassVar[frozenset[str]] = frozenset({"self", "carry", "source"})
    across: ClassVar[bool] = True
    score: Score | None
    cell: Cell = "gru"
    order: Literal["before", "after"] = "before"

    def fit(self, where: str, width: int) -> None:
        if width % 2:
            needed = f"half of a source's vector was read from its end, and {width} is odd"
            raise RecipeError(where, type(self).__name__, needed, "use an even width")

    def build(self, width: int) -> "RecurrentAcrossLayer":
        return RecurrentAcrossLayer(self, width)


@dataclass(frozen=True, slots=True)
class Opened:
    """The sources of N documents, as the decoder looks at them."""

    fixed: Tensor  # [N, D] the ends of both ways
    values: Tensor  # [N, S, D]
    keys: Tensor  # [N, S, E] what the score made of them
    seen: Tensor  # [N, S] bool

    def each(self, change: Callable[[Tensor], Tensor]) -> "Opened":
        return Opened(change(self.fixed), change(self.values), change(self.keys), change(self.seen))

    def first(self, count: int) -> "Opened":
        return self if count == len(self.fixed) else self.each(lambda value: value[:count])


@dataclass(frozen=True, slots=True)
class Wrote(Cache):
    """What was given for the last tokens, [B, n, D], the state behind them, and the sources."""

    out: Tensor
    state: RNNState
    source: Opened

    def rows(self, index: Tensor) -> "Wrote":
        return Wrote(self.out[index], self.state.rows(index), self.source.each(lambda value: value[index]))

    def tail(self, count: int, unread: int = 0) -> "Wrote":
        raise ValueError("a state holds all that was read, not the last tokens of it")


class RecurrentAcrossLayer(MixerLayer):
    """Weights of `RecurrentAcross`: a recurrence, and the score by which it attends to its source."""

    def __init__(self, spec: RecurrentAcross, width: int):
        super().__init__()
        self.width, self.after = width, spec.order == "after"
        self.score = spec.score.build(width) if spec.score else None
        self.begin = Linear(width // 2, width)
        self.cell = CellLayer(spec.cell, width if self.after else 2 * width, width)
        self.out = Linear(2 * width, width) if self.after else Linear(3 * width, 2 * width)

    def extend(self, past: Cache | None, x: Tensor) -> Wrote:
        assert isinstance(past, Wrote)
        documents = Documents.rows(x)
        out, state, _ = self._write(x, documents, past.state, past.source)
        return Wrote(out, state, past.source)

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, Wrote | None]:
        if context.kind == "order" or isinstance(memory, Tensor):
            raise ValueError("a state cannot hide what an order hides, and takes no rows but its own")
        if isinstance(memory, Wrote):
            return memory.out, memory if context.carry else None
        documents = documents_of(context)
        if context.carry and len(documents) != len(query):
            raise ValueError("a state is carried for each row, and some row here has several documents")
        source, start = self._open(documents, context)
        out, state, weights = self._write(query, documents, start, source, context.backend == "dense")
        if context.capture is not None and weights is not None:
            context.capture.keep("weights", spread(weights, documents, context))
        return out, Wrote(out, state, source) if context.carry else None

    def _open(self, documents: Documents, context: Context) -> tuple[Opened, RNNState]:
        """The source of each document, and the state it begins with; of padding, which has none, zeros."""
        at, lengths = sources(documents, context)
        assert context.source is not None
        hidden, length = context.source.hidden.flatten(0, 1), max(int(lengths.max()), 1)
        places = (at[:, None] + torch.arange(length)).clamp(max=len(hidden) - 1)
        there, places = lengths > 0, places.to(hidden.device)
        ends = [hidden.index_select(0, each.to(hidden.device)) for each in (at + (lengths - 1).clamp(min=0), at)]
        last, first = (each * there[:, None].to(each) for each in ends)
        values = hidden.index_select(0, places.flatten()).view(*places.shape, -1)
        half, seen = self.width // 2, (torch.arange(length) < lengths[:, None]).to(hidden.device)
        opened = Opened(
            fixed=torch.cat([last[:, :half], first[:, half:]], -1),
            values=values,
            keys=values if self.score is None else self.score.keys(values),
            seen=seen,
        )
        return opened, self.cell.begin(torch.tanh(self.begin(first[:, half:])))

    def _write(
        self, x: Tensor, documents: Documents, state: RNNState, source: Opened, dense: bool = False
    ) -> tuple[Tensor, RNNState, Tensor | None]:
        """x [B, L, D] -> the same, the states behind, and the weights [n, S] where there are any."""
        read = documents.pack(x)
        waits = self.score is not None and not self.after
        steps = self._step_by_step if waits or dense else self._at_once
        states, contexts, weights, state = steps(read, documents, state, source)
        if self.after:
            out = torch.tanh(self.out(torch.cat([contexts, states], -1)))
        else:
            pairs = self.out(torch.cat([states, read.to(states.dtype), contexts], -1))
            out = pairs.unflatten(-1, (self.width, 2)).amax(-1)
        return documents.unpack(out), state, weights

    def _step_by_step(
        self, x: Tensor, documents: Documents, state: RNNState, source: Opened
    ) -> tuple[Tensor, Tensor, Tensor | None, RNNState]:
        """The definition."""
        own, looked = self.cell.reads(self.width, 0 if self.after else self.width)
        steps: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for read in linear(x, own, self.cell.inner.bias).split(documents.counts.tolist()):
            count = len(read)
            now, here = state.first(count), source.first(count)
            if self.after:
                new = self.cell.step(read, now)
                context, weights = self._context(new.h, here)
            else:
                context, weights = self._context(now.h, here)
                new = self.cell.step(read + linear(context, looked, None), now)
            steps.append((new.h, context, weights))
            state = new.then(state)
        states, contexts, weights = zip(*steps, strict=True)
        return torch.cat(states), torch.cat(contexts), None if self.score is None else torch.cat(weights), state

    def _context(self, query: Tensor, source: Opened) -> tuple[Tensor, Tensor | None]:
        """query [N, D] -> what the source answers, [N, D], and the weights [N, S]."""
        if self.score is None:
            return source.fixed, None
        context, weights = attend(self.score, query[:, None], source.keys, source.values, source.seen)
        return context[:, 0], weights[:, 0]

    def _at_once(
        self, x: Tensor, documents: Documents, state: RNNState, source: Opened
    ) -> tuple[Tensor, Tensor, Tensor | None, RNNState]:
        """The same where no step waits for the context of another."""
        fixed = source.fixed.index_select(0, documents.document)
        read = x if self.after else torch.cat([x, fixed.to(x.dtype)], -1)
        states, (state,) = run((self.cell,), read, documents.counts, (state,))
        if self.score is None:
            return states, fixed, None, state
        context, weights = attend(self.score, documents.grid(states), source.keys, source.values, source.seen)
        return states, documents.ungrid(context), documents.ungrid(weights), state


def sources(documents: Documents, context: Context) -> tuple[Tensor, Tensor]:
    """[N] flat offset of the first token of each document's source, and how many it has; found once a pass."""

    source = context.source
    if source is None:
        raise ValueError("a decoder needs context.source")

    def find() -> tuple[Tensor, Tensor]:
        side = source.token_info
        others = Documents.of(source.layout or find_documents(side), side.document.device)
        partner = documents.partners(context.query, others, side)
        return others.first[partner.clamp(min=0)], others.lengths[partner.clamp(min=0)] * (partner >= 0)

    return context.once("sources", find)


def spread(weights: Tensor, documents: Documents, context: Context) -> Tensor:
    """[n, S] of each token over its own source -> [B, 1, L, M] over all of its row."""
    assert context.source is not None
    width = context.source.token_info.document.shape[1]
    at, lengths = (each.to(weights.device)[documents.document, None] for each in sources(documents, context))
    place = torch.arange(weights.shape[1], device=weights.device)
    columns = torch.where(place < lengths, at % width + place, width)  # one more column, for what is no source
    whole = weights.new_zeros(len(weights), width + 1).scatter(1, columns, weights)[:, :width]
    return documents.unpack(whole)[:, None]
