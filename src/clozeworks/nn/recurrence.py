"""A recurrence over texts of different lengths, a step of all of them at a time, written out forward and backward.

Texts are laid out by time: first the first token of every text, the longest text first, then the second tokens of those
that have one, and so on (`Steps`). So a step is a stretch of rows, and what is already over costs nothing.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from clozeworks.batch import Borders

GATES = 4  # input, forget, candidate, output: torch's order


@dataclass(frozen=True, slots=True)
class Steps:
    """The texts of a batch by time: N texts, T tokens together."""

    into: Tensor  # [T] flat offsets of the tokens in order of time
    back: Tensor  # [T] where in that order each token of the batch is
    counts: tuple[int, ...]  # texts that have a first, second, ... token
    texts: tuple[int, ...]  # the number of each of the N texts among the borders

    @staticmethod
    def of(borders: Borders, device: torch.device) -> "Steps":
        lengths = torch.tensor(borders.lengths)
        texts = lengths.argsort(descending=True, stable=True)
        starts, lengths = torch.tensor(borders.starts)[texts], lengths[texts]
        time = torch.arange(int(lengths[0]))
        into = (starts + time[:, None])[lengths > time[:, None]]
        counts = (lengths > time[:, None]).sum(1)
        back = torch.empty_like(into).index_copy_(0, into, torch.arange(len(into)))
        return Steps(into.to(device), back.to(device), tuple(counts.tolist()), tuple(texts.tolist()))


def recur(
    entering: Tensor, state: Tensor, out: Tensor | None, h: Tensor, c: Tensor, counts: tuple[int, ...],
    clip: float | None = None, clip_out: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """entering [T, 4C] in order of time, W [4C, D], P [D, C] or None, h [N, D], c [N, C] before the first step.

    Gives h of every token [T, D], and h and c of each text after its last, the latter two without a gradient.
    """
    outs, cells = _Recurrence.apply(entering, state, out, h, c, counts, clip, clip_out)
    last = torch.tensor(_last(counts), device=outs.device)
    return outs, outs.detach()[last], cells[last]


def _last(counts: tuple[int, ...]) -> list[int]:
    """Of each text the row of its last token."""
    rows = [0] * counts[0]
    for begin, count in zip(accumulate(counts, initial=0), counts, strict=False):
        rows[:count] = range(begin, begin + count)
    return rows


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, entering: Tensor, state: Tensor, out: Tensor | None, h: Tensor, c: Tensor, counts: tuple[int, ...],
        clip: float | None, clip_out: float | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        gates, width = entering.clone(), len(c[0])
        cells, squashed = gates.new_empty(len(gates), width), gates.new_empty(len(gates), width)
        inner = gates.new_empty(len(gates), width) if out is not None else None
        outs = gates.new_empty(len(gates), h.shape[1])
        turned, turned_out = state.t(), None if out is None else out.t()
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
        ctx.save_for_backward(gates, cells, squashed, inner, outs, state, out, h, c)
        ctx.counts, ctx.clip, ctx.clip_out = counts, clip, clip_out
        ctx.mark_non_differentiable(cells)
        return outs, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, squashed, inner, outs, state, out, h, c = ctx.saved_tensors
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
            torch.mm(d_gates[begin:end], state, out=d_h[:count])
        # The h before each step: that of the step before, or what there was in the beginning.
        before = torch.cat([h] + [outs[steps[n - 1][0] :][:count] for n, count in enumerate(ctx.counts) if n])
        d_state = d_gates.t() @ before
        d_out_weight = None if out is None else d_outs.t() @ inner
        return d_gates, d_state, d_out_weight, d_h, d_c, None, None, None
