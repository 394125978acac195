"""The recurrent cells: one step of them, and many at once by torch's kernels."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from clozeworks.core.cache import RNNState
from clozeworks.nn.kernels.linear import Linear

Cell = Literal["gru", "lstm"]


class CellLayer(nn.Module):
    """gru (Cho et al. 2014), with torch's bias of the new state inside the reset gate:

        r, z = sigmoid(W x + U h);  n = tanh(W_n x + r (U_n h + b));  h' = (1 - z) n + z h

    lstm (Hochreiter & Schmidhuber 1997; Gers et al. 2000):

        i, f, o = sigmoid(W x + U h);  g = tanh(W_g x + U_g h);  c' = f c + i g;  h' = o tanh(c')

    Gates stand in torch's order, r z n and i f g o.
    """

    def __init__(self, kind: Cell, inputs: int, width: int):
        super().__init__()
        self.kind, self.width = kind, width
        gates, self.cells = (3 * width, 0) if kind == "gru" else (4 * width, width)
        self.inner, self.hidden = Linear(inputs, gates), Linear(width, gates)

    def zeros(self, like: Tensor, count: int) -> RNNState:
        return self.begin(like.new_zeros(count, self.width))

    def begin(self, h: Tensor) -> RNNState:
        return RNNState(h, h.new_zeros(len(h), self.cells))

    def reads(self, *widths: int) -> tuple[Tensor, ...]:
        """W in parts, for inputs side by side of these widths; each a tensor of its own, for the sake of speed."""
        return tuple(part.contiguous() for part in self.inner.weight.split(widths, 1))

    def step(self, read: Tensor, state: RNNState) -> RNNState:
        """One step of N sequences, what they read given as W x + b."""
        asked = self.hidden(state.h)
        if self.kind == "gru":
            (xr, xz, xn), (hr, hz, hn) = read.chunk(3, -1), asked.chunk(3, -1)
            new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
            return RNNState(new + torch.sigmoid(xz + hz) * (state.h - new), state.c)
        return remember(read + asked, state.c)


def remember(gates: Tensor, c: Tensor, clip: float | None = None) -> RNNState:
    """One step of an LSTM from its four gates side by side, with its cells in [-clip, clip]."""
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    c = c if clip is None else c.clamp(-clip, clip)
    return RNNState(torch.sigmoid(o) * torch.tanh(c), c)


def run(
    cells: Sequence[CellLayer], x: Tensor, counts: Tensor, states: Sequence[RNNState]
) -> tuple[Tensor, list[RNNState]]:
    """Ragged sequences x [n, D_in] in the order of `Documents` -> [n, D] and the states behind their last tokens.

    Of two cells the second reads from the last token of each to its first, and their outputs stand side by side.
    """
    flat = [
        tensor
        for cell in cells
        for tensor in (cell.inner.weight, cell.hidden.weight, cell.inner.bias, cell.hidden.bias)
    ]
    h = torch.stack([state.h for state in states]).to(x.dtype)
    how = (flat, True, 1, 0.0, torch.is_grad_enabled(), len(cells) == 2)
    if cells[0].kind == "gru":
        out, h = torch.gru(x, counts, h, *how)
        return out, [RNNState(each, state.c) for each, state in zip(h, states, strict=True)]
    c = torch.stack([state.c for state in states]).to(x.dtype)
    out, h, c = torch.lstm(x, counts, (h, c), *how)
    return out, [RNNState(a, b) for a, b in zip(h, c, strict=True)]


def step_by_step(
    step: Callable[[Tensor, RNNState], RNNState], read: Tensor, counts: Tensor, state: RNNState, back: bool = False
) -> tuple[Tensor, RNNState]:
    """The same by the definition of a step, which takes pieces of `read`; `back`: from the last token to the first."""
    pieces = read.split(counts.tolist())
    out: list[Tensor] = []
    for piece in reversed(pieces) if back else pieces:
        state = step(piece, state.first(len(piece))).then(state)
        out.append(state.h[: len(piece)])
    return torch.cat(out[::-1] if back else out), state
