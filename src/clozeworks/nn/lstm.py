"""A recurrent mixer: what was read so far, in one vector that is carried along."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.batch import PADDING, Borders, Context
from clozeworks.carry import Carry, State
from clozeworks.errors import RecipeError
from clozeworks.key import Key, dropout
from clozeworks.nn.documents import borders_of
from clozeworks.nn.fresh import Fresh
from clozeworks.nn.linear import linear
from clozeworks.nn.locked import locked
from clozeworks.nn.mixer import Mixer, MixerLayer
from clozeworks.nn.recurrence import GATES, Steps, recur
from clozeworks.spec import LATE


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
    takes: ClassVar[frozenset[str]] = frozenset({"self", "state"})
    cells: int | None = None
    clip: float | None = None
    clip_out: float | None = None
    width: int | None = field(default=None, metadata=LATE)
    weight_drop: float = field(default=0.0, metadata=LATE)
    locked: float = field(default=0.0, metadata=LATE)

    def check(self, where: str) -> None:
        if self.cells is not None and self.cells < 1:
            raise RecipeError(f"{where}.cells", self.cells, "at least one cell is needed", "use None for the width")
        for name in ("clip", "clip_out"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise RecipeError(f"{where}.{name}", value, "a bound above 0 is needed", "use 3, or None for none")
        if self.width is not None and self.width < 1:
            raise RecipeError(f"{where}.width", self.width, "at least 1 is needed", "use None for that of its input")
        for name in ("weight_drop", "locked"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"{where}.{name}", getattr(self, name), "a rate in [0, 1) is needed", "use 0.5 or 0")

    def out_width(self, width: int) -> int:
        return self.width or width

    def build(self, width: int) -> "LSTMLayer":
        return LSTMLayer(self, width)


class LSTMLayer(MixerLayer, Fresh):
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

    def extend(self, past: Carry | None, x: Tensor) -> Carry:
        raise NotImplementedError("a recurrence has no keys: give its forward pass the state")

    def forward(self, query: Tensor, memory: Tensor | Carry | None, context: Context) -> tuple[Tensor, State | None]:
        if context.kind != "causal":
            raise ValueError(f"a recurrence reads one way, and {context.kind} visibility is another")
        assert memory is None or isinstance(memory, State)
        borders = borders_of(context)
        query = locked(query, self.locked, context.at("locked"))
        with _exactly(query.device.type):
            mixed, state = self.run(query.to(self.bias.dtype), memory, borders, context)
        return mixed, state if context.carry else None

    def run(self, x: Tensor, past: State | None, borders: Borders, context: Context) -> tuple[Tensor, State]:
        clips = self.clip is not None or self.clip_out is not None
        by_torch = not clips and (self.out is None or self.cells > self.width) and context.backend != "dense"
        recurrent = self._recurrent(context.key)
        if by_torch and borders.plain:
            return self._torch(x, past, recurrent)
        by_torch = by_torch and not torch.is_grad_enabled()
        steps = context.once("steps", lambda: Steps.of(borders, x.device))
        h, c = self._start(x, past, borders, steps)
        laid = x.flatten(0, 1).index_select(0, steps.into)
        if by_torch:
            outs, h, c = self._torch_ragged(laid, h, c, steps, recurrent)
        elif context.backend == "dense":
            outs, h, c = self._plainly(laid, h, c, steps, recurrent)
        else:
            entering = linear(laid, self.enter, self.bias)
            outs, h, c = recur(entering, recurrent, self.out, h, c, steps.counts, self.clip, self.clip_out)
        mixed = outs.index_select(0, steps.back).view(*x.shape[:-1], self.width)
        return mixed, self._end(h, c, past, borders, steps, context) if context.carry else State(h, c)

    def _start(self, x: Tensor, past: State | None, borders: Borders, steps: Steps) -> tuple[Tensor, Tensor]:
        """What each text begins with: nothing, unless it goes on where its row ended."""
        h, c = x.new_zeros(len(steps.texts), self.width), x.new_zeros(len(steps.texts), self.cells)
        if past is None:
            return h, c
        heads = [n for n, text in enumerate(steps.texts) if borders.starts[text] % borders.width == 0]
        rows = [borders.starts[steps.texts[n]] // borders.width for n in heads]
        at = torch.tensor(heads, device=x.device)
        return h.index_copy(0, at, past.h[rows].to(x.dtype)), c.index_copy(0, at, past.c[rows].to(x.dtype))

    def _end(self, h: Tensor, c: Tensor, past: State | None, borders: Borders, steps: Steps, context: Context) -> State:
        """Of each row the state after its last text that is not padding."""
        if borders.plain:
            order = torch.tensor(steps.texts, device=h.device).argsort()
            return State(h[order], c[order])
        flat = context.query.document.flatten()
        padding = (flat[torch.tensor(borders.starts, device=flat.device)] == PADDING).tolist()
        last = dict.fromkeys(range(borders.rows), -1)
        place = {text: n for n, text in enumerate(steps.texts)}
        for text, start in sorted(enumerate(borders.starts), key=lambda each: each[1]):
            if not padding[text]:
                last[start // borders.width] = place[text]
        rows = torch.tensor([last[row] for row in range(borders.rows)], device=h.device)
        nothing = (rows < 0)[:, None]
        old = State(torch.zeros_like(h[:1]), torch.zeros_like(c[:1])) if past is None else past
        return State(
            torch.where(nothing, old.h, h[rows.clamp(min=0)]), torch.where(nothing, old.c, c[rows.clamp(min=0)])
        )

    def _recurrent(self, key: Key | None) -> Tensor:
        """R, of which a step under a key has not all: one draw for all that the step reads."""
        return self.state if key is None else dropout(self.state, self.weight_drop, key.common(key.site, "state"))

    def _weights(self, recurrent: Tensor) -> list[Tensor]:
        weights = [self.enter, recurrent, self.bias, torch.zeros_like(self.bias)]
        return weights if self.out is None else [*weights, self.out]

    def _torch(self, x: Tensor, past: State | None, recurrent: Tensor) -> tuple[Tensor, State]:
        """Rows of one text each."""
        if past is None:
            past = State(x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.cells))
        start = (past.h[None].to(x.dtype), past.c[None].to(x.dtype))
        with _without_onednn() if self.out is not None else contextlib.nullcontext():
            weights, learns = self._weights(recurrent), torch.is_grad_enabled()
            mixed, h, c = torch.lstm(x, start, weights, True, 1, 0.0, learns, False, True)
        return mixed, State(h[0].detach(), c[0].detach())

    def _torch_ragged(
        self, laid: Tensor, h: Tensor, c: Tensor, steps: Steps, recurrent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        counts, weights, learns = torch.tensor(steps.counts), self._weights(recurrent), torch.is_grad_enabled()
        outs, h, c = torch.lstm(laid, counts, (h[None], c[None]), weights, True, 1, 0.0, learns, False)
        return outs, h[0].detach(), c[0].detach()

    def _plainly(
        self, laid: Tensor, h: Tensor, c: Tensor, steps: Steps, recurrent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The definition, step by step."""
        outs, states = [], [h, c]
        last = [*states]
        for x in laid.split(list(steps.counts)):
            n = len(x)
            gates = F.linear(x, self.enter, self.bias) + F.linear(states[0][:n], recurrent)
            i, f, g, o = gates.chunk(GATES, 1)
            cell = f.sigmoid() * states[1][:n] + i.sigmoid() * g.tanh()
            cell = cell if self.clip is None else cell.clamp(-self.clip, self.clip)
            given = o.sigmoid() * cell.tanh()
            given = given if self.out is None else F.linear(given, self.out)
            given = given if self.clip_out is None else given.clamp(-self.clip_out, self.clip_out)
            outs.append(given)
            states = [given, cell]
            last = [torch.cat([new, old[n:]]) for new, old in zip(states, last, strict=True)]
        return torch.cat(outs), last[0].detach(), last[1].detach()


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
