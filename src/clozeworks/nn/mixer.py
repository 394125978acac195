"""What mixes tokens (`Mixer`), and what adds to attention scores, such as relative positions (`Bias`).

One signature for self-attention, memory, two streams, caches and cross-attention:

    mixer(query, memory, context) -> (mixed, carry)

`memory` is None for the query rows themselves, a tensor for hidden rows (which include the query's own where they
may be seen), or a Cache for rows already projected by `extend`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clozeworks.core.cache import Cache
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.init import CustomInit


@dataclass(slots=True)
class Mixer(Spec):
    """Base of the mixers' specs; what a mixer can do is known before it is built."""

    honours: ClassVar[frozenset[str]] = frozenset({"full", "causal", "prefix", "order"})  # visibility it respects
    takes: ClassVar[frozenset[str]] = frozenset({"self", "rows", "carry"})  # memories; source: of others; state
    scores: ClassVar[bool] = False  # whether every pair that may be seen has a score, to be compared with a teacher's
    across: ClassVar[bool] = False  # whether it reads the source by itself, and its block needs no cross-attention
    whole: ClassVar[str | None] = "it has no heads that could be cut"  # why none can be; None: some can

    def fit(self, where: str, width: int) -> None:
        """Raise `RecipeError` if it cannot be built so wide."""

    def out_width(self, width: int) -> int:
        """Of the vectors that it gives."""
        return width

    def keep_heads(self, kept: Sequence[int], width: int) -> "Mixer":
        """The same mixer, in a model so wide, with these of its heads alone, each as wide as it was."""
        raise NotImplementedError(self.whole)

    @abstractmethod
    def build(self, width: int) -> "MixerLayer": ...


def fit_heads(where: str, heads: int, width: int, name: str = "heads") -> None:
    """Raise `RecipeError` if so many heads cannot share a width, with those that could."""
    if heads < 1 or width % heads == 0:
        return
    near = sorted((n for n in range(1, width + 1) if width % n == 0), key=lambda n: abs(n - heads))
    todo = "use " + " or ".join(map(str, sorted(near[:3])))
    raise RecipeError(f"{where}.{name}", heads, f"width {width} is not divisible by it", todo)


class MixerLayer(nn.Module):
    """Base of the mixers' modules: the signature above."""

    carries: ClassVar[bool] = True  # whether it gives a carry when asked for one; else rows are read again each time
    by_head: ClassVar[Mapping[str, int]] = {}  # parameters with a part for each head: the dimension of these parts

    @abstractmethod
    def extend(self, past: Cache | None, x: Tensor) -> Cache:
        """Project rows [B, n, D] and append them to what was carried."""

    @abstractmethod
    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, Cache | None]:
        """Mix [B, L, D] -> [B, L, D] (`Mixer.out_width`), or [W, D] at `context.places` where these are given and it
        saves work.

        The carry is given back when `context.carry` asks for it.
        """

    def reach(self, context: Context) -> int | None:
        """How many rows before its queries it looks at, at most; None: any number."""
        return None


@dataclass(slots=True)
class Bias(Spec):
    """Base of what adds to attention scores: relative positions, spans."""

    honours: ClassVar[frozenset[str]] = Mixer.honours
    common: ClassVar[tuple[str, ...]] = ()  # the parameters that `Share.bias` shares
    nearest: ClassVar[int] = 0  # how far before a token the first key is that it lets be seen; 0: the token itself

    def fit(self, where: str, width: int) -> None:
        """Raise `RecipeError` if it cannot be built so wide."""

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


class BiasLayer(CustomInit):
    """Base of the modules that add to attention scores."""

    adds_values: ClassVar[bool] = False  # whether it has a `value`, for which attention takes the dense path
    by_head: ClassVar[Mapping[str, int]] = {}  # as `MixerLayer.by_head`

    @abstractmethod
    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """From q [B, H, L, d]: the q to use, what to add to the scaled scores [B, H, L, M], and which pairs it
        allows (bool, broadcastable); None adds or forbids nothing. A forbidden pair is never -1e30: a row that
        sees nothing must give nothing."""

    def apart(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Apart] | None:
        """The same in the form that a fast path takes, where there is one and index distance is position distance."""
        return None

    def furthest(self) -> int | None:
        """How many keys before a query it looks at, at most; None: any number, or keys after it, too."""
        return None

    def allowed(self, context: Context) -> Tensor | None:
        """The pairs that `apart` does not allow are False: bool, broadcastable to [B, H, L, M]; None forbids nothing.

        A query that sees something sees something of these. The same tensor for all layers that allow the same
        (`context.once`).
        """
        return None

    def value(self, weights: Tensor, context: Context) -> Tensor:
        """From the weights [B, H, L, M]: what to add to the values they give, [B, H, L, d]."""
        raise NotImplementedError
