"""A recurrence over documents of different lengths, a step of all of them at a time, written out forward and backward.

They are ordered by time, as `Documents` has them.
"""

from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.cache import RNNState

GATES = 4  # input, forget, candidate, output: torch's order


def recur(
    entering: Tensor, recurrent: Tensor, out: Tensor | None, start: RNNState, counts: Tensor, clip: float | None = None,
    clip_out: float | None = None,
) -> tuple[Tensor, RNNState]:  # fmt: skip
    """entering [T, 4C] in order of time, R [4C, D], P [D, C] or None, the states of N documents before the first step.

    Gives h of every token [T, D], and the state of each document after its last, the latter without a gradient.
    """
    outs, cells = _Recurrence.apply(entering, recurrent, out, start.h, start.c, counts.tolist(), clip, clip_out)
    number = torch.arange(int(counts[0]))
    lengths = (counts[:, None] > number).sum(0)
    last = (counts.cumsum(0) - counts)[lengths - 1] + number
    return outs, RNNState(outs.detach(), cells).rows(last.to(outs.device))


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, entering: Tensor, recurrent: Tensor, out: Tensor | None, h: Tensor, c: Tensor, counts: list[int],
        clip: float | None, clip_out: float | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Step after step: step t has `counts[t]` rows, those of the longest documents first."""
        gates, width = entering.clone(), len(c[0])
        cells, squashed = gates.new_empty(len(gates), width), gates.new_empty(len(gates), width)
        inner = gates.new_empty(len(gates), width) if out is not None else None
        outs = gates.new_empty(len(gates), h.shape[1])
        turned, turned_out = recurrent.t(), None if out is None else out.t()
        before, cell = h, c
        for begin, end in pairwise(accumulate(counts, initial=0)):
            count = end - begin
            here = gates[begin:end].addmm_(before[:count], turned)
            here[:, : 2 * width].sigmoid_()
            here[:, 2 * width : 3 * width].tanh_()
            here[:, 3 * width :].sigmoid_()
            i, f, g, o = here.chunk(GATES, 1)
            new = torch.mul(f, cell[:count], out=cells[begin:end]).addcmul_(i, g)
            if clip is not None:
                new.clamp_(-clip, clip)
            shown = torch.tanh(new, out=squashed[begin:end])
            if inner is None or turned_out is None:
                given = torch.mul(o, shown, out=outs[begin:end])
            else:
                given = torch.mm(torch.mul(o, shown, out=inner[begin:end]), turned_out, out=outs[begin:end])
            if clip_out is not None:
                given.clamp_(-clip_out, clip_out)
            before, cell = given, new
        ctx.save_for_backward(gates, cells, squashed, inner, outs, recurrent, out, h, c)
        ctx.counts, ctx.clip, ctx.clip_out = counts, clip, clip_out
        ctx.mark_non_differentiable(cells)
        return outs, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by hand, from the last step to the first."""
        gates, cells, squashed, inner, outs, recurrent, out, h, c = ctx.saved_tensors
        steps = list(pairwise(accumulate(ctx.counts, initial=0)))
        d_gates, d_outs = torch.empty_like(gates), grads[0].clone()
        d_h, d_c = torch.zeros_like(h), torch.zeros_like(c)
        for number, (begin, end) in reversed(list(enumerate(steps))):
            count = end - begin
            d_out = d_outs[begin:end].add_(d_h[:count])
            if ctx.clip_out is not None:
                d_out *= outs[begin:end].abs() < ctx.clip_out
            d_inner = d_out if out is None else d_out @ out
            i, f, g, o = gates[begin:end].chunk(GATES, 1)
            shown, old = squashed[begin:end], cells[steps[number - 1][0] :][:count] if number else c[:count]
            d_cell = d_c[:count].add_(d_inner * o * (1 - shown * shown))
            if ctx.clip is not None:
                d_cell *= cells[begin:end].abs() < ctx.clip
            for part, value in zip(
                d_gates[begin:end].chunk(GATES, 1),
                (d_cell * g * i * (1 - i), d_cell * old * f * (1 - f), d_cell * i * (1 - g * g),
                 d_inner * shown * o * (1 - o)),
                strict=True,
            ):  # fmt: skip
                part.copy_(value)
            d_cell *= f
            torch.mm(d_gates[begin:end], recurrent, out=d_h[:count])
        # The h before each step: that of the step before, or what there was in the beginning.
        before = torch.cat([h] + [outs[steps[n - 1][0] :][:count] for n, count in enumerate(ctx.counts) if n])
        d_recurrent = d_gates.t() @ before
        d_out_weight = None if out is None else d_outs.t() @ inner
        return d_gates, d_recurrent, d_out_weight, d_h, d_c, None, None, None
