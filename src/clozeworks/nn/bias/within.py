"""Only what is near."""

from dataclasses import dataclass

from torch import Tensor

from clozeworks.core.bounds import Count
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.mixer import Bias, BiasLayer


@dataclass(slots=True)
class Within(Bias):
    """Another bias, and of the keys only those less than `reach` places away, the token itself among them.

    With `reach` = `Stack.memory` every token of a segment sees as many (Dai et al. 2019, published code: same_length,
    used for evaluation), where without it the last one sees a segment more than the first. A mask alone: pairs that are
    too far apart are computed too.

    q [B, H, L, d] -> what the other bias gives, and a mask [B, 1, L, M].
    """

    reach: Count
    bias: Bias

    @property
    def honours(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bias.honours

    @property
    def common(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f"bias.{name}" for name in self.bias.common)

    @property
    def nearest(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bias.nearest

    def fit(self, where: str, width: int) -> None:
        self.bias.fit(f"{where}.bias", width)
        if self.reach <= self.nearest:
            needed = (
                f"its {type(self.bias).__name__} begins {self.nearest} before a token, so that nothing would be seen"
            )
            raise RecipeError(f"{where}.reach", self.reach, needed, f"use {self.nearest + 1} or more")

    def build(self, width: int, heads: int, head_width: int) -> "WithinLayer":
        return WithinLayer(self.reach, self.bias.build(width, heads, head_width))


class WithinLayer(BiasLayer):
    """The bias inside `Within`, with its mask."""

    def __init__(self, reach: int, bias: BiasLayer):
        super().__init__()
        self.reach, self.bias = reach, bias

    @property
    def adds_values(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bias.adds_values

    def forward(self, q: Tensor, context: Context, scale: float) -> tuple[Tensor, Tensor | None, Tensor | None]:
        q, added, allowed = self.bias(q, context, scale)
        near = context.once(f"within.{self.reach}", lambda: _near(context, self.reach))
        return q, added, near if allowed is None else near & allowed

    def value(self, weights: Tensor, context: Context) -> Tensor:
        return self.bias.value(weights, context)


def _near(context: Context, reach: int) -> Tensor:
    """[B, 1, L, M] bool."""
    distance = context.query.position[:, :, None] - context.memory.position[:, None, :]
    return (distance.abs() < reach)[:, None]
