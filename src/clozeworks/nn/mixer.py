"""What mixes tokens: one signature for self-attention, memory, two streams, caches and cross-attention.

    mixer(query, memory, context) -> (mixed, carry)

`memory` is None for the query rows themselves, a tensor for hidden rows (which include the query's own where they
may be seen), or a Carry for rows already projected by `extend`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clozeworks.batch import Carry, Context
from clozeworks.spec import Spec


@dataclass(slots=True)
class Mixer(Spec):
    """Base of the mixers' specs; what a mixer can do is told before it is built."""

    honours: ClassVar[frozenset[str]] = frozenset({"full", "causal", "prefix", "order"})  # visibility it respects
    takes: ClassVar[frozenset[str]] = frozenset({"self", "rows", "carry"})  # memories it accepts

    @abstractmethod
    def build(self, width: int) -> "MixerLayer": ...


class MixerLayer(nn.Module):
    @abstractmethod
    def extend(self, past: Carry | None, x: Tensor) -> Carry:
        """Project rows [B, n, D] and append them to what was carried."""

    @abstractmethod
    def forward(self, query: Tensor, memory: Tensor | Carry | None, context: Context) -> tuple[Tensor, Carry | None]:
        """Mix [B, L, D] -> [B, L, D], or [W, D] at `context.places` where these are given and it saves work.

        The carry is given back when `context.carry` asks for it.
        """


@dataclass(slots=True)
class Bias(Spec):
    """Base of what adds to attention scores: relative positions, spans."""

    @abstractmethod
    def build(self, width: int, heads: int, head_width: int) -> "BiasLayer": ...


@dataclass(frozen=True, slots=True)
class Apart:
    """What a bias adds to scores, with what depends on the distance alone not yet spread over the keys.

    added_ij + scale * asked_i . table_{c}, where c = L - 1 - i + j, while query i is memory i + offset.
    """

    asked: Tensor  # [B, H, L, d]
    table: Tensor  # [1 or B, H, R, d], R > M
    added: Tensor | None = None  # [B, H, L, M] or what broadcasts to it


class BiasLayer(nn.Module):
    common: ClassVar[tuple[str, ...]] = ()  # the parameters that `Share.bias` shares

    @abstractmethod
    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """From q [B, H, L, d]: the q to use, what to add to the scaled scores [B, H, L, M], and which pairs it
        allows (bool, broadcastable); None adds or forbids nothing. A forbidden pair is never -1e30: a row that
        sees nothing must give nothing."""

    def apart(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart] | None:
        """The same in the form that a fast path takes, where there is one and index distance is position distance."""
        return None
