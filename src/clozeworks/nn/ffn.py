"""The position-wise feed-forward part."""

from dataclasses import dataclass, field

from torch import Tensor, nn

from clozeworks.errors import RecipeError
from clozeworks.key import Key, dropout
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.linear import Linear
from clozeworks.spec import LATE, Spec


@dataclass(slots=True)
class FeedForward(Spec):
    """y = W_2 act(W_1 x + b_1) + b_2, the same at every position (Vaswani et al. 2017, 3.3). [B, L, D] -> [B, L, D].

    `dropout` is that of the inner units (Dai et al. 2019, published code).
    """

    inner: int
    activation: Activation = "gelu"
    dropout: float = field(default=0.0, metadata=LATE)

    def check(self, where: str) -> None:
        if self.inner < 1:
            raise RecipeError(f"{where}.inner", self.inner, "at least one unit is needed", "4 x width is usual")
        if not 0 <= self.dropout < 1:
            raise RecipeError(f"{where}.dropout", self.dropout, "a rate in [0, 1) is needed", "use 0.1 or 0")

    def build(self, width: int) -> "FeedForwardLayer":
        return FeedForwardLayer(width, self.inner, self.activation, self.dropout)


class FeedForwardLayer(nn.Module):
    def __init__(self, width: int, inner: int, activation: Activation, dropout: float = 0.0):
        super().__init__()
        self.up = Linear(width, inner)
        self.down = Linear(inner, width)
        self.activation, self.dropout = FUNCTIONS[activation], dropout

    def forward(self, x: Tensor, key: Key | None = None) -> Tensor:
        return self.down(dropout(self.activation(self.up(x)), self.dropout, key))
