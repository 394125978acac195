"""A recurrent mixer: what was read so far, in one vector that is carried along."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.bounds import Count, Positive, Rate
from clozeworks.core.cache import Cache, RNNState
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.core.token_info import PADDING
from clozeworks.nn.cell import remember, step_by_step
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.documents import Documents, borders_of, documents_of
from clozeworks.nn.kernels.linear import linear
from clozeworks.nn.kernels.recurrence import GATES, recur
from clozeworks.nn.kernels.variational_dropout import drop_variationally
from clozeworks.nn.mixer import Mixer, MixerLayer


@dataclass(slots=True)
class LSTM(Mixer):
    """Long short-term memory, with a projection if it has more cells than the model is wide (Sak et al. 2014).

    i, f, o = sigmoid(W x_t + R h_{t-1} + b),  g = tanh(the same);   c_t = f c_{t-1} + i g;   h_t = P (o tanh(c_t))

    With `clip` the cells stay in [-clip, clip], also where the tanh reads them; with `clip_out` so does h_t, behind the
    projection (Peters et al. 2018, code: both 3). `cells` None: as many as the width, and no P. One bias a gate; that
    of the forget gate begins as 1. `width`: of h_t, where it is another than that of x_t.

    In training, `weight_drop` is the share of the numbers of R that are 0 (Wan et al. 2013; Merity et al. 2018, 2): the
    same for all tokens and rows of a step, others in each step, the rest times 1 / (1 - share). `locked` is the rate at
    which units of x are dropped, the same for all tokens of a text (`locked`).

    Shapes [B, L, D] -> [B, L, D]. O(L D C), one step after another. It reads one way, so that it honours causal
    visibility alone, and begins anew with every document: packed is as alone. What it carries is its `State`, whose
    size does not grow. Without clips the steps are torch's, with clips they are `recurrence`'s, which gives the same
    numbers where no clip bites; also without, where rows of several documents are learned from, since torch takes up to
    five times as long for the way back through those.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    untraceable: ClassVar[str | None] = "it reads a token after another, as many steps as the text is long"
    takes: ClassVar[frozenset[str]] = frozenset({"self", "state"})
    cells: Count | None = None
    clip: Positive | None = None
    clip_out: Positive | None = None
    width: Count | None = None
    weight_drop: Rate = 0.0
    locked: Rate = 0.0

    def out_width(self, width: int) -> int:
        return self.width or width

    def build(self, width: int) -> "LSTMLayer":
        return LSTMLayer(self, width)


class LSTMLayer(MixerLayer, CustomInit):
    """Weights in torch's order of gates: input, forget, candidate, output."""

    carries: ClassVar[bool] = False

    def __init__(self, spec: LSTM, width: int):
        super().__init__()
        self.width, self.clip, self.clip_out = spec.out_width(width), spec.clip, spec.clip_out
        self.cells, self.weight_drop, self.locked = spec.cells or self.width, spec.weight_drop, spec.locked
        self.enter = nn.Parameter(torch.zeros(GATES * self.cells, width))
        self.state = nn.Parameter(torch.zeros(GATES * self.cells, self.width))
        self.bias = nn.Parameter(torch.zeros(GATES * self.cells))
        self.out = nn.Parameter(torch.zeros(self.width, self.cells)) if spec.cells else None
        for name, parameter in self.named_parameters():
            self.begin(name, parameter, 0.0, None)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator | None) -> None:
        if name == "bias":
            with torch.no_grad():
                parameter.zero_()[self.cells : 2 * self.cells] = 1.0
            return
        rows, columns = parameter.shape
        columns = columns if name == "out" else self.enter.shape[1] + self.width  # those of [W, R] as one
        bound = (6 / (rows + columns)) ** 0.5  # Glorot & Bengio 2010
        nn.init.uniform_(parameter, -bound, bound, generator)

    def extend(self, past: Cache | None, x: Tensor) -> Cache:
        raise NotImplementedError("a recurrence has no keys: give its forward pass the state")

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, RNNState | None]:
        if context.kind != "causal":
            raise ValueError(f"a recurrence reads one way, and {context.kind} visibility is another")
        assert memory is None or isinstance(memory, RNNState)
        query = drop_variationally(query, self.locked, context.at("locked"))
        with _exactly(query.device.type):
            mixed, state = self.run(query.to(self.bias.dtype), memory, context)
        return mixed, RNNState(state.h.detach(), state.c.detach()) if context.carry else None

    def run(self, x: Tensor, past: RNNState | None, context: Context) -> tuple[Tensor, RNNState]:
        """What is given for each token, and the state behind each row, or behind each document if none is carried."""
        clips = self.clip is not None or self.clip_out is not None
        by_torch = not clips and (self.out is None or self.cells > self.width) and context.backend != "dense"
        recurrent = self._recurrent(context.key)
        past = past or RNNState(x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.cells))
        if by_torch and borders_of(context).plain:
            return self._torch(x, past, recurrent)
        documents = documents_of(context)
        packed, counts, start = documents.pack(x), documents.counts, _start(past, documents, x)
        if by_torch and not torch.is_grad_enabled():
            begin, weights = (start.h[None], start.c[None]), self._weights(recurrent)
            outs, h, c = torch.lstm(packed, counts, begin, weights, True, 1, 0.0, False, False)
            state = RNNState(h[0], c[0])
        elif context.backend == "dense":
            outs, state = step_by_step(partial(self._step, recurrent), packed, counts, start)
        else:
            entering = linear(packed, self.enter, self.bias)
            outs, state = recur(entering, recurrent, self.out, start, counts, self.clip, self.clip_out)
        return documents.unpack(outs), _end(state, past, documents, context) if context.carry else state

    def _recurrent(self, key: DropoutKey | None) -> Tensor:
        """R, of which a step under a key has not all: one draw for all that the step reads."""
        return self.state if key is None else dropout(self.state, self.weight_drop, key.common(key.site, "state"))

    def _weights(self, recurrent: Tensor) -> list[Tensor]:
        weights = [self.enter, recurrent, self.bias, torch.zeros_like(self.bias)]
        return weights if self.out is None else [*weights, self.out]

    def _torch(self, x: Tensor, past: RNNState, recurrent: Tensor) -> tuple[Tensor, RNNState]:
        """Rows of one document each."""
        start = (past.h[None].to(x.dtype), past.c[None].to(x.dtype))
        with _without_onednn() if self.out is not None else contextlib.nullcontext():
            weights, learns = self._weights(recurrent), torch.is_grad_enabled()
            mixed, h, c = torch.lstm(x, start, weights, True, 1, 0.0, learns, False, True)
        return mixed, RNNState(h[0], c[0])

    def _step(self, recurrent: Tensor, x: Tensor, state: RNNState) -> RNNState:
        """The definition."""
        new = remember(F.linear(x, self.enter, self.bias) + F.linear(state.h, recurrent), state.c, self.clip)
        given = new.h if self.out is None else F.linear(new.h, self.out)
        return RNNState(given if self.clip_out is None else given.clamp(-self.clip_out, self.clip_out), new.c)


def _start(past: RNNState, documents: Documents, like: Tensor) -> RNNState:
    """What each document begins with: nothing, unless it continues where its row ended."""
    width = documents.shape[1]
    row, inside = documents.first // width, (documents.first % width > 0).to(like.device)[:, None]
    return RNNState(*(each[row].to(like.dtype).masked_fill(inside, 0) for each in (past.h, past.c)))


def _end(state: RNNState, past: RNNState, documents: Documents, context: Context) -> RNNState:
    """Of each row the state after its last document that is not padding."""
    rising = documents.first.argsort()
    if len(documents) == documents.shape[0]:  # a document a row: no need to ask the device which are padding
        return state.rows(rising)
    names = documents.names(context.query)
    last = {names[number][0]: number for number in rising.tolist() if names[number][1] != PADDING}
    rows = torch.tensor([last.get(row, -1) for row in range(documents.shape[0])], device=state.h.device)
    nothing, ended = (rows < 0)[:, None], state.rows(rows)
    return RNNState(torch.where(nothing, past.h, ended.h), torch.where(nothing, past.c, ended.c))


def _exactly(device: str) -> contextlib.AbstractContextManager[Any]:
    """Cells add up over a row: never in bf16."""
    there = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if there else contextlib.nullcontext()


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Which has no projections, and torch would warn of that."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)
