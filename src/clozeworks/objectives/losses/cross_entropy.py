"""Cross-entropy against a whole vocabulary, without the logits of all predictions at once.

    loss = sum_t (logsumexp(z_t) - z_t[label_t]),  z_t = W x_t + b;   dz_t = softmax(z_t) - onehot(label_t)

The sum over predictions can be taken in pieces, and what a piece adds to the gradients of x, W and b is known as soon
as its logits are: so both are made in one go, in one buffer, and the backward pass only multiplies by the gradient of
the sum. With labels that are not certain, q = a onehot(label) + b, a + b V = 1 (`Mix`), the same holds of

    loss = sum_t (logsumexp(z_t) - a z_t[label_t] - b sum(z_t));   dz_t = softmax(z_t) - a onehot(label_t) - b

Wijmans et al. 2024 and Hsu et al. 2024 do the same on GPUs. No [predictions, vocabulary] tensor is larger
than `BUDGET` bytes.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from clozeworks.nn.kernels.linear import linear

BUDGET = 64 << 20  # bytes of logits at a time: small beside a model, enough rows to keep the products busy


class Mix(NamedTuple):
    """How sure a label is: `label` for its own word, beside `each` for every word."""

    label: float = 1.0
    each: float = 0.0


SURE = Mix()


def cross_entropy(x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, E], table [V, E], bias [V], labels [T] -> the summed loss, and how many labels no other word beat."""
    total, own, best = compared(x, table, bias, labels)
    return total, (own >= best).sum()


def compared(x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss, and for each prediction [T] the logit of its label and the largest of all."""
    return _CrossEntropy.apply(x, table, bias, labels, torch.is_grad_enabled(), SURE)[:3]


def mixed(x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, mix: Mix) -> tuple[Tensor, Tensor, Tensor]:
    """As `cross_entropy`, of labels that are not certain; and without a gradient, the loss of the labels themselves."""
    total, own, best, certain = _CrossEntropy.apply(x, table, bias, labels, torch.is_grad_enabled(), mix)
    return total, (own >= best).sum(), certain


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, learns: bool, mix: Mix):
        """Logits of a piece of the predictions at a time; gradients are made on the way, logits are not kept."""
        exact = torch.promote_types(x.dtype, torch.float32)  # sums of bf16 would not be
        total, certain = x.new_zeros((), dtype=exact), x.new_zeros((), dtype=exact)
        owns, bests = x.new_empty(len(x), dtype=exact), x.new_empty(len(x), dtype=exact)
        d_x, d_table = (torch.zeros_like(t) if learns else t for t in (x, table))
        d_bias = torch.zeros_like(bias) if learns and bias is not None else bias
        rows = max(1, BUDGET // (exact.itemsize * len(table)))
        for begin in range(0, len(x), rows):
            piece, label = x[begin : begin + rows], labels[begin : begin + rows, None]
            z = linear(piece, table, bias).to(exact)
            best, own = z.amax(-1), z.gather(1, label)[:, 0]
            every = z.sum(-1) if mix.each else None
            p = torch.softmax(z, -1, out=z)
            # The best word's share is 1 / sum exp(z - best): never so small that its logarithm were inexact.
            norm = best - p.amax(-1).log()
            certain += (norm - own).sum()
            if every is not None:
                total += (norm - mix.label * own - mix.each * every).sum()
            owns[begin : begin + rows], bests[begin : begin + rows] = own, best
            if learns:
                d_z = p.scatter_add_(1, label, p.new_full((), -mix.label).expand_as(label))
                if mix.each:
                    d_z -= mix.each
                if d_bias is not None:
                    d_bias += d_z.sum(0)
                d_x[begin : begin + rows] = linear(d_z, table.t(), None)
                if not x.is_meta and torch.is_autocast_enabled(x.device.type):
                    d_table += d_z.t() @ piece
                else:
                    d_table.addmm_(d_z.t(), piece)
                del d_z
            del z, p  # before the next piece is made
        ctx.save_for_backward(d_x, d_table, d_bias)
        total = total if mix.each else certain.clone()
        ctx.mark_non_differentiable(owns, bests, certain)
        return total, owns, bests, certain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        return *(None if d is None else d * grads[0].to(d.dtype) for d in ctx.saved_tensors), None, None, None
