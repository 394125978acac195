"""Whether a linear part is faster with int8 weights than with fp32 ones, tokens made int8 and all."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from clozeworks.nn.int8 import products
from clozeworks.nn.int8.products import Int8Weights
from clozeworks.nn.kernels.linear import linear

OPTIONS = ("fp32", "int8")
TOKENS, WIDE, OUT = 512, 384, 1536


def make(threads: int) -> Callable[[str], float]:
    """Seconds of eight products, by option."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, WIDE, generator=generator) for rows in (TOKENS, OUT))
    own = Int8Weights(*products.quantize_rows(weight), torch.zeros(OUT))
    os.environ[products.CHOICE] = "1"  # this is what has to be found out

    def run(option: str) -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            for _ in range(8):
                products.linear(x, own) if option == "int8" else linear(x, weight, own.bias)
        return time.perf_counter() - begin

    return run


def facts() -> dict[str, Any]:
    """What the processor and the installation have for it."""
    return {"vnni": products.has_vnni(), "fused": products.fused() is not None}
