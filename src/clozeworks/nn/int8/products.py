"""Products of int8 matrices, with what stands around them.

    y = W x + b   ~   s_x s_W (W8 x8) + b,      x8 = round(x / s_x),  s_x = max |x| / 127 of the token

Weights have a scale for each output (row of W), tokens each their own, found when they come. The product sums in int32,
where nothing is rounded. `torch._int_mm` makes it, at 4 to 4.6 times the speed of fp32 where the processor multiplies
int8 (VNNI); the rest is compiled by numba where that is installed, and by torch where not, which takes longer than the
product (docs/int8.md). Where int8 is no faster, on tensors elsewhere or of another type, and where gradients are asked
for, W is spread out to fp32 and x stays as it is.
"""

import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.token_info import DocumentLayout

CHOICE = "CLOZEWORKS_INT8"  # what the doctor found: 1 int8 is faster here, 0 it is not; unset: by the instruction set


@dataclass(frozen=True, slots=True)
class Int8Weights:
    """W8 [out, in] int8, s_W [out], b [out] or None."""

    quantized: Tensor
    scale: Tensor
    bias: Tensor | None

    def spread(self) -> Tensor:
        """W in fp32."""
        return spread(self.quantized, self.scale)


def spread(quantized: Tensor, scale: Tensor) -> Tensor:
    """Rows of int8 [..., n, m] in fp32, by their scales [..., n]."""
    return quantized.to(scale.dtype) * scale[..., None]


def pays() -> bool:
    """Whether this processor multiplies int8 faster than fp32."""
    chosen = os.environ.get(CHOICE)
    return chosen == "1" if chosen in ("0", "1") else has_vnni()


@cache
def has_vnni() -> bool:
    known = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(known is not None and known()) and torch.backends.mkldnn.is_available()


@cache
def fused() -> ModuleType | None:
    """The compiled kernels, where numba is there to compile them."""
    if importlib.util.find_spec("numba") is None:
        return None
    from clozeworks.nn.kernels import int8_fused as kernels

    return kernels


def takes(x: Tensor) -> bool:
    """Whether the tokens of x are to be made int8."""
    here = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()
    learns = torch.is_grad_enabled() and x.requires_grad
    return here and not learns and not torch.is_autocast_enabled("cpu") and x.numel() > 0 and pays()


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """[n, D] fp32 -> int8 [n, D] and scales [n]; a row of zeros has scale 1."""
    kernels = fused() if x.device.type == "cpu" and x.dtype == torch.float32 else None
    if kernels is not None:
        quantized, scale = torch.empty(x.shape, dtype=torch.int8), torch.empty(len(x))
        kernels.quantize(_array(x), quantized.numpy(), scale.numpy())
        return quantized, scale
    largest = x.abs().amax(-1)
    empty = largest == 0
    quantized = (x * torch.where(empty, 0, 127 / largest)[..., None]).round().to(torch.int8)
    return quantized, torch.where(empty, 1, largest * torch.tensor(1 / 127))


def multiply(tokens: Tensor, weights: Tensor) -> Tensor:
    """[n, K] int8, [N, K] int8 -> [n, N] int32, exactly."""
    return torch._int_mm(tokens, weights.t())  # pyright: ignore[reportPrivateImportUsage]


def dequantize(sums: Tensor, scale: Tensor, weights: Int8Weights) -> Tensor:
    """[n, N] int32 -> fp32 with the bias."""
    kernels = fused()
    if kernels is not None:
        out = torch.empty(sums.shape)
        kernels.dequantize(sums.numpy(), scale.numpy(), _array(weights.scale), _bias(weights), out.numpy())
        return out
    out = sums.float() * (scale[:, None] * weights.scale)
    return out if weights.bias is None else out + weights.bias


def linear(x: Tensor, weights: Int8Weights) -> Tensor:
    """[..., K] -> [..., N]."""
    if not takes(x):
        return F.linear(x, weights.spread().to(x.dtype), weights.bias)
    tokens, scale = quantize_rows(x.reshape(-1, x.shape[-1]))
    out = dequantize(multiply(tokens, weights.quantized), scale, weights)
    return out.view(*x.shape[:-1], out.shape[-1])


def feed_forward(x: Tensor, up: Int8Weights, down: Int8Weights) -> Tensor | None:
    """W_2 gelu(W_1 x + b_1) + b_2, whose inner units are never fp32 in memory; None where that cannot be."""
    kernels = fused()
    if kernels is None or not takes(x):
        return None
    tokens, scale = quantize_rows(x.reshape(-1, x.shape[-1]))
    sums = multiply(tokens, up.quantized)
    inner, inner_scale = torch.empty(sums.shape, dtype=torch.int8), torch.empty_like(scale)
    kernels.gelu_quantize(sums.numpy(), scale.numpy(), _array(up.scale), _bias(up), inner.numpy(), inner_scale.numpy())
    return dequantize(multiply(inner, down.quantized), inner_scale, down).view(x.shape)


def attention(
    x: Tensor, projections: tuple[Int8Weights, ...], out: Int8Weights, heads: int, layout: DocumentLayout
) -> Tensor | None:
    """Full attention within each document of a layout, by query, key and value; None where it cannot be fused."""
    kernels = fused()
    if kernels is None or not takes(x):
        return None
    tokens, scale = quantize_rows(x.reshape(-1, x.shape[-1]))
    given = []
    for each in projections:
        given += [multiply(tokens, each.quantized).numpy(), _array(each.scale), _bias(each)]
    mixed = torch.empty(len(tokens), len(projections[-1].quantized), dtype=torch.int8)
    mixed_scale = torch.empty_like(scale)
    borders = np.array(layout.starts), np.array(layout.lengths)
    kernels.attend(scale.numpy(), *given, *borders, heads, mixed.numpy(), mixed_scale.numpy())
    return dequantize(multiply(mixed, out.quantized), mixed_scale, out).view(*x.shape[:-1], -1)


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


def _bias(weights: Int8Weights) -> np.ndarray:
    return np.zeros(len(weights.scale), np.float32) if weights.bias is None else _array(weights.bias)
