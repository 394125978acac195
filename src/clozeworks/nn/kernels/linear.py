"""The matrix product, which is most of a step, by the fastest library this processor has.

torch's wheels for x86 carry two, MKL and oneDNN, and ask MKL. On processors of AMD, oneDNN is 10 to 20 % faster for
y = x W^T + b and for dx = g W, at every shape an encoder has; for dW = g^T x the two are equal
(docs/benchmarks.md). The choice depends on the processor alone, so that a run that continues rounds as before.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """y = W x + b over the last dimension: [..., D_in] -> [..., D_out]."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, where it has to be; else the same by the other library."""
    plain = x.ndim > 1 and x.dtype == torch.float32 and x.device.type == "cpu" and type(weight) in _PLAIN
    if not plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or not other_is_faster():
        return F.linear(x, weight, bias)
    return _Product.apply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], len(weight))


_PLAIN = (Tensor, nn.Parameter)  # a sharded parameter knows its own way


@cache
def other_is_faster() -> bool:
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (g,), (x, weight) = grads, ctx.saved_tensors
        return (
            _product(g, weight.t(), None) if ctx.needs_input_grad[0] else None,
            g.t() @ x if ctx.needs_input_grad[1] else None,
            g.sum(0) if ctx.needs_input_grad[2] else None,
        )
