"""How far back each head looks, learned."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, Share
from clozeworks.core.context import Context
from clozeworks.nn.bias.distance import distances, positive, shifted, span
from clozeworks.nn.mixer import Apart, Bias, BiasLayer

STEP = 64  # keys by which what is computed grows and shrinks, as in the published code
NOTHING = 1e-30  # a weight that counts for nothing, and that a gradient can still raise


@dataclass(slots=True)
class AdaptiveSpan(Bias):
    """Another bias, and of the keys before the query only as many as each head has learned to want (Sukhbaatar et al.
    2019, 2.2).

    w_ij = m(i - j) e^{s_ij} / sum_j' m(i - j') e^{s_ij'},  m(distance) = clip((ramp + z - (distance - 1)) / ramp, 0, 1)

    z = `limit` * share, where a head's share is in [0, 1] (`constrain`) and begins at `init`; beyond `limit` nothing is
    seen. The weights of the published code, softmax times m made to sum to 1, are these: log m is added to the scores,
    and where it would be log of less than 0 there is no key. Departure: the code adds 1e-8 to the sum it divides by.

    q [B, H, L, d] -> q, and [B, H, L, M] to add. Only keys in reach of the layer's longest span are computed:
    O(L (z + ramp + block) d), which `SpanPenalty` makes small. `DistanceTable` inside is the published model,
    `Relative` inside Transformer-XL with spans that are learned.
    """

    honours: ClassVar[frozenset[str]] = frozenset({"causal"})
    limit: Count
    bias: Bias
    ramp: Count = 32
    init: Share = 0.0

    @property
    def common(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f"bias.{name}" for name in self.bias.common)

    @property
    def nearest(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bias.nearest

    def fit(self, where: str, width: int) -> None:
        self.bias.fit(f"{where}.bias", width)

    def build(self, width: int, heads: int, head_width: int) -> "AdaptiveSpanLayer":
        return AdaptiveSpanLayer(self, heads, self.bias.build(width, heads, head_width))


class AdaptiveSpanLayer(BiasLayer):
    """Weights of `AdaptiveSpan`: a share of the limit for each head, and the bias inside."""

    by_head: ClassVar[Mapping[str, int]] = {"share": 0}

    def __init__(self, spec: AdaptiveSpan, heads: int, bias: BiasLayer):
        super().__init__()
        self.limit, self.ramp, self.init, self.bias = spec.limit, spec.ramp, spec.init, bias
        self.share = nn.Parameter(torch.full((heads,), float(spec.init)))
        self._known: tuple[tuple[int, int] | None, float] | None = None  # the largest share, and of which state it is

    @property
    def adds_values(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bias.adds_values

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.constant_(parameter, self.init)

    def spans(self) -> Tensor:
        """[H]: z of each head, the tokens that it sees whole."""
        return self.limit * self.share.clamp(0, 1)

    def penalty(self) -> dict[str, Tensor]:
        """The mean of the spans, which is to be short; and the length that the published code tells of it."""
        mean = self.spans().float().mean()
        return {"span": mean, "average_span": (mean.detach().ceil() + self.ramp).clamp(max=self.limit)}

    def constrain(self) -> Tensor | None:
        """Put the shares back into [0, 1]; gives what `know` takes, unless each process holds a part of it."""
        with torch.no_grad():
            self.share.clamp_(0, 1)
        self._known = None
        return None if hasattr(self.share, "to_local") else self.share.detach().max()

    def know(self, most: float) -> None:
        self._known = self._state, most

    @property
    def _state(self) -> tuple[int, int] | None:
        """Another one when the shares have been written to; None where that is not counted."""
        return None if self.share.is_inference() else (id(self.share), self.share._version)

    def furthest(self) -> int:
        """Keys that the longest span can reach, rounded up; the device is asked where `know` was not called."""
        if self.share.is_meta:
            return self._within(self.limit)
        if self._known is None or self._known[0] is None or self._known[0] != self._state:
            self.know(float(self.share.detach().max()))
        assert self._known is not None
        return self._within(math.floor(self.limit * min(max(self._known[1], 0.0), 1.0)) + self.ramp + 1)

    def _within(self, keys: int) -> int:
        own = min(-(-keys // STEP) * STEP, self.limit)
        inner = self.bias.furthest()
        return own if inner is None else min(own, inner)

    def allowed(self, context: Context) -> Tensor:
        inner = self.bias.allowed(context)

        def near() -> Tensor:
            near = positive(context) <= self.limit
            return near if inner is None else near & inner

        return context.once(f"limit.{self.limit}.{id(inner)}", near)

    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        q, added, allowed = self.bias(q, context, scale)
        near = positive(context)
        seen = (near <= self.limit) & self._seen(near)
        faded = self._log(near)
        return q, faded if added is None else added + faded, seen if allowed is None else seen & allowed

    def apart(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart] | None:
        parts = self.bias.apart(q, context, scale)
        if parts is None:
            return None
        q, apart = parts
        first, last, _ = context.once("distances", lambda: span(context))
        distance, (length, memory) = distances(first, last, context)[0], (q.shape[2], context.memory.position.shape[1])
        faded = self._log(distance[None, None]).masked_fill(~self._seen(distance[None, None]), -math.inf)
        faded = shifted(faded[None].to(q.dtype).expand(-1, -1, length, -1), memory)
        return q, Apart(apart.asked, apart.table, faded if apart.added is None else apart.added + faded)

    def value(self, weights: Tensor, context: Context) -> Tensor:
        return self.bias.value(weights, context)

    def _open(self, distance: Tensor) -> Tensor:
        """m before it is clipped, of distances [..., L, M] -> [..., H, L, M]."""
        return (self.spans()[:, None, None] - (distance - 1)) / self.ramp + 1

    def _log(self, distance: Tensor) -> Tensor:
        return (self._open(distance).clamp(0, 1) + NOTHING).log()

    def _seen(self, distance: Tensor) -> Tensor:
        return self._open(distance.detach()).detach() >= 0
