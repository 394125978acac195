"""The position-wise feed-forward part."""

from dataclasses import dataclass

from torch import Tensor, nn

from clozeworks.errors import RecipeError
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.linear import Linear
from clozeworks.spec import Spec


@dataclass(slots=True)
class FeedForward(Spec):
    """y = W_2 act(W_1 x + b_1) + b_2, the same at every position (Vaswani et al. 2017, 3.3). [B, L, D] -> [B, L, D]."""

    inner: int
    activation: Activation = "gelu"

    def check(self, where: str) -> None:
        if self.inner < 1:
            raise RecipeError(f"{where}.inner", self.inner, "at least one unit is needed", "4 x width is usual")

    def build(self, width: int) -> "FeedForwardLayer":
        return FeedForwardLayer(width, self.inner, self.activation)


class FeedForwardLayer(nn.Module):
    def __init__(self, width: int, inner: int, activation: Activation):
        super().__init__()
        self.up = Linear(width, inner)
        self.down = Linear(inner, width)
        self.activation = FUNCTIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))
