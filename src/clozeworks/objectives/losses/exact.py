"""Numbers to add up."""

import torch
from torch import Tensor


def exact(x: Tensor) -> Tensor:
    """In fp32 at least: sums of bf16 would not be."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
