"""The position-wise feed-forward part."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clozeworks.core.bounds import Count, Rate
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.core.spec import Spec
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.int8 import parts as int8
from clozeworks.nn.kernels.linear import Linear


@dataclass(slots=True)
class FeedForward(Spec):
    """y = W_2 act(W_1 x + b_1) + b_2, the same at every position (Vaswani et al. 2017, 3.3). [B, L, D] -> [B, L, D].

    `dropout` is that of the inner units (Dai et al. 2019, published code). With a `chunk`, so many positions of every
    row are transformed at a time (Kitaev et al. 2020, 3): on the way forth and on the way back no more than their inner
    units are alive, which are computed once more. The vectors are the same.
    """

    inner: Count
    activation: Activation = "gelu"
    dropout: Rate = 0.0
    chunk: Count | None = None

    def build(self, width: int) -> "FeedForwardLayer":
        return FeedForwardLayer(width, self.inner, self.activation, self.dropout, self.chunk)


class FeedForwardLayer(nn.Module):
    """Weights of `FeedForward`: [..., D] -> [..., D]."""

    def __init__(self, width: int, inner: int, activation: Activation, dropout: float = 0.0, chunk: int | None = None):
        super().__init__()
        self.up = Linear(width, inner)
        self.down = Linear(inner, width)
        self.activation, self.dropout, self.chunk = FUNCTIONS[activation], dropout, chunk

    def forward(self, x: Tensor, key: DropoutKey | None = None) -> Tensor:
        if self.chunk is None or self.chunk >= x.shape[-2]:
            return self._through(x, key)
        places = torch.arange(x.shape[:-1].numel(), device=x.device).view(x.shape[:-1])
        pieces = zip(x.split(self.chunk, -2), places.split(self.chunk, -1), strict=True)
        return torch.cat([self._piece(piece, own.flatten(), places.numel(), key) for piece, own in pieces], -2)

    def _piece(self, x: Tensor, places: Tensor, total: int, key: DropoutKey | None) -> Tensor:
        """Of the tokens at `places` among `total`, which drop what they would among all."""
        key = key.tokens(places, total) if key is not None and self.dropout else None
        if not torch.is_grad_enabled():
            return self._through(x, key)
        out = checkpoint(self._through, x, key, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(out, Tensor)
        return out

    def _through(self, x: Tensor, key: DropoutKey | None) -> Tensor:
        fuses = self.activation is FUNCTIONS["gelu"] and (key is None or not self.dropout)
        if fuses and (out := int8.feed_forward(self.up, self.down, x)) is not None:
            return out
        return self.down(dropout(self.activation(self.up(x)), self.dropout, key))
