"""From which length on rows with a window are faster in pieces than with a mask, measured on this machine.

Both paths give the same numbers but for rounding, so a border changes speed alone. A pass is that of a small encoder:
what is made once a pass is shared by its layers.
"""

import math
import time

import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.cache import KVCache
from clozeworks.nn.kernels import windowed
from clozeworks.nn.kernels.backends import masked
from clozeworks.nn.window import Window

WINDOW, HEADS, SIZE, LAYERS = Window(128), 4, 64, 4
BEYOND = (0, 64, 128, 256, 512)  # tokens of a row beyond the keys of a piece
SECONDS = 1.5


def measure() -> dict[str, dict[str, float]]:
    """Milliseconds of a pass without gradients in pieces and with a mask, by how far a row is beyond a piece."""
    options = [(beyond, path) for beyond in BEYOND for path in ("pieces", "mask")]
    best, end = dict.fromkeys(options, math.inf), time.perf_counter() + SECONDS
    for turn in range(13):
        for beyond, path in options:
            seconds = run(windowed.QUERIES + WINDOW.left + WINDOW.after + beyond, path)
            if turn:  # the first one warms up
                best[beyond, path] = min(best[beyond, path], seconds)
        if turn and time.perf_counter() > end:
            break
    found: dict[str, dict[str, float]] = {}
    for (beyond, path), seconds in best.items():
        found.setdefault(str(beyond), {})[path] = round(1000 * seconds, 3)
    return found


@torch.no_grad()
def run(length: int, path: str) -> float:
    """Seconds of a pass over one row."""
    q, k, v = torch.randn(3, 1, length, HEADS, SIZE).transpose(2, 3).unbind(0)
    context = from_padded(torch.zeros(1, length, dtype=torch.int64)).context()
    begin = time.perf_counter()
    for _ in range(LAYERS):
        if path == "pieces":
            windowed.windowed(q, KVCache(k, v), context, WINDOW, 0.0)
        else:
            masked(q, KVCache(k, v), context, 0.0, context.once("near", lambda: WINDOW.near(context)))
    return time.perf_counter() - begin
