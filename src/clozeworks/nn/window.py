"""Which keys are near enough to be worth computing."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.core.bounds import Count, Natural
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec


@dataclass(slots=True)
class Window(Spec):
    """Query i looks at keys i - left * g to i + right * g in steps of g, of which it sees what visibility allows
    (Beltagy et al. 2020, 3.1). O(L (left + right) d) time and memory.

    `right` = None: as many as to the left. g is `dilation`, one for all heads or one for each.

    A mask over [L, M]; cost is that of its user.
    """

    left: Natural
    right: Natural | None = None
    dilation: Count | tuple[Count, ...] = 1

    @property
    def after(self) -> int:
        return self.left if self.right is None else self.right

    def check(self, where: str) -> None:
        if self.dilation == ():
            raise RecipeError(f"{where}.dilation", self.dilation, "a step for each head is needed", "use 1")

    def fit(self, where: str, heads: int) -> None:
        """Raise `RecipeError` if it has another number of heads."""
        if isinstance(self.dilation, tuple) and len(self.dilation) != heads:
            needed = f"one step for each of {heads} heads is needed"
            raise RecipeError(f"{where}.dilation", list(self.dilation), needed, "give one for all, or as many")

    def keep_heads(self, kept: Sequence[int]) -> "Window":
        """That of these heads alone."""
        if not isinstance(self.dilation, tuple):
            return self
        return dataclasses.replace(self, dilation=tuple(self.dilation[head] for head in kept))

    def near(self, context: Context) -> Tensor:
        """[B, 1 or H, L, M] bool: the definition."""
        distance = (context.query.position[:, :, None] - context.memory.position[:, None, :])[:, None]
        steps = self.dilation if isinstance(self.dilation, tuple) else (self.dilation,)
        step = torch.tensor(steps, device=distance.device)[:, None, None]
        return (distance <= self.left * step) & (distance >= -self.after * step) & (distance % step == 0)
