"""Dropout of the weights of a pass in pieces: drawn on the way forth, and kept as bits for the way back.

A piece has a seed of its own and drops what `key.keep` says. On the host it is drawn by numpy while it is in cache, at
half a nanosecond a weight, and one bit a weight is kept: 0.7 MB for 4,096 tokens, 4 heads and 320 keys a query.
Elsewhere nothing is kept and the piece is drawn again.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.dropout import DropoutKey, keep, keep_on_host


class Drops:
    """Dropout masks of the pieces of one attention, kept as bits for the way back."""

    def __init__(self, key: DropoutKey, rate: float, shapes: Sequence[tuple[int, ...]]):
        """A seed of the key for each piece, of whose weights these are the shapes."""
        self.key, self.rate, self.shapes = key, rate, shapes
        self.states = key.states() if key.seeds.device.type == "cpu" else None
        self.ends = list(accumulate((-(-math.prod(shape) // 8) for shape in shapes), initial=0))

    def room(self) -> Tensor:
        """An empty [bytes] for the bits of all pieces."""
        return torch.empty(0 if self.states is None else self.ends[-1], dtype=torch.uint8, device=self.key.seeds.device)

    def draw(self, number: int, bits: Tensor) -> Tensor:
        """1 where a weight of this piece is kept, else 0, [shape] uint8; noted in `bits`."""
        shape = self.shapes[number]
        if self.states is None:
            seed = self.key.seeds[number : number + 1]
            return keep(seed, None, self.key.site, bits.new_empty(1).expand(shape), self.rate).view(torch.uint8)
        mask = keep_on_host(self.states[number], shape, self.rate)
        self._own(number, bits)[:] = np.packbits(mask)
        return torch.from_numpy(mask.view(np.uint8))

    def again(self, number: int, bits: Tensor) -> Tensor:
        """What `draw` gave."""
        if self.states is None:
            return self.draw(number, bits)
        shape = self.shapes[number]
        return torch.from_numpy(np.unpackbits(self._own(number, bits), count=math.prod(shape)).reshape(shape))

    def _own(self, number: int, bits: Tensor) -> np.ndarray:
        return bits.numpy()[self.ends[number] : self.ends[number + 1]]
