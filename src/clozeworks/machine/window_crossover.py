"""From which length on rows with a window are faster in pieces than with a mask, measured on this machine.

Both paths give the same numbers but for rounding, so a border changes speed alone. A pass is that of a small encoder:
what is made once a pass is shared by its layers.
"""

import time

import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.cache import KVCache
from clozeworks.nn.kernels import windowed
from clozeworks.nn.kernels.backends import masked
from clozeworks.nn.window import Window

WINDOW, HEADS, SIZE, LAYERS = Window(128), 4, 64, 4
BEYOND = (0, 64, 128, 256, 512)  # tokens of a row beyond the keys of a piece
OPTIONS = [(beyond, path) for beyond in BEYOND for path in ("pieces", "mask")]


@torch.no_grad()
def run(beyond: int, path: str) -> float:
    """Seconds of a pass without gradients, in pieces or with a mask, over one row so far beyond a piece."""
    length = windowed.QUERIES + WINDOW.left + WINDOW.after + beyond
    q, k, v = torch.randn(3, 1, length, HEADS, SIZE).transpose(2, 3).unbind(0)
    context = from_padded(torch.zeros(1, length, dtype=torch.int64)).context()
    begin = time.perf_counter()
    for _ in range(LAYERS):
        if path == "pieces":
            windowed.windowed(q, KVCache(k, v), context, WINDOW, 0.0)
        else:
            masked(q, KVCache(k, v), context, 0.0, context.once("near", lambda: WINDOW.near(context)))
    return time.perf_counter() - begin
