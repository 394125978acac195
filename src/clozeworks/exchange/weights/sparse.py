"""Tensors with many zeros in fewer bytes of a safetensors file: which are none, a bit each, and the values of those."""

from math import prod

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.errors import InputError

MASK, VALUES, SHAPE = ".nonzero", ".values", ".shape"
WORTH = 0.9  # of the bytes of a tensor: it is not taken apart for less
WHOLE = {torch.float32: torch.int32, torch.int8: torch.int8}  # of as many bytes, where -0.0 is not 0


def pack(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor as it is, or in three parts where that is smaller; `unpack` gives it back bit for bit."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        packed |= _parts(name, tensor) if is_sparse(tensor) else {name: tensor}
    return packed


def is_sparse(tensor: Tensor) -> bool:
    """Whether a matrix takes fewer bytes in parts."""
    if tensor.dtype not in WHOLE or tensor.ndim < 2:
        return False
    size, there = tensor.element_size(), int(_nonzero(tensor).sum())
    return there * size + tensor.numel() / 8 <= WORTH * tensor.numel() * size


def _nonzero(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(WHOLE[tensor.dtype]) != 0


def _parts(name: str, tensor: Tensor) -> dict[str, Tensor]:
    tensor = tensor.detach().cpu()
    there = _nonzero(tensor)
    return {
        name + MASK: torch.from_numpy(np.packbits(there.numpy().reshape(-1))),
        name + VALUES: tensor[there].contiguous(),
        name + SHAPE: torch.tensor(tensor.shape),
    }


def unpack(tensors: dict[str, Tensor], where: object) -> dict[str, Tensor]:
    """Every tensor whole; `InputError` where the parts of one do not fit together."""
    whole = dict(tensors)
    for name in [name.removesuffix(MASK) for name in tensors if name.endswith(MASK)]:
        if name + VALUES not in tensors or name + SHAPE not in tensors:
            continue
        mask, values, shape = (whole.pop(name + part) for part in (MASK, VALUES, SHAPE))
        if name in tensors or not _fit(mask, values, shape):
            needed, todo = "its bits, values and shape belong together", "copy it again"
            raise InputError(where, f"a sparse tensor {name} that is torn", needed, todo)
        sides = tuple(shape.tolist())
        there = torch.from_numpy(np.unpackbits(mask.numpy(), count=prod(sides)).astype(bool)).view(sides)
        whole[name] = values.new_zeros(sides).masked_scatter_(there, values)
    return whole


def _fit(mask: Tensor, values: Tensor, shape: Tensor) -> bool:
    if mask.dtype != torch.uint8 or shape.dtype != torch.int64 or any(each.ndim != 1 for each in (mask, values, shape)):
        return False
    sides = shape.tolist()
    if any(side < 0 for side in sides) or -(-prod(sides) // 8) != len(mask):
        return False
    bits = np.unpackbits(mask.numpy())
    return int(bits.sum()) == len(values) and not bits[prod(sides) :].any()
