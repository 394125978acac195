"""A price on large activations."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import NonNegative
from clozeworks.core.token_info import PADDING
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.objective import Loss, LossLayer, Needs


@dataclass(slots=True)
class ActivationSize(Loss):
    """Activations of the last layer, to be small (Merity et al. 2017: "activation regularisation", AR).

    weight * mean over tokens and units of (m h)^2, with m the mask of the dropout behind the last layer

    Minimised with the losses and reported apart from them. The mean is over all tokens of a step, padding left out.

    [B, L, D] -> a number. O(L D): next to nothing.
    """

    name: ClassVar[str] = "activation_size"
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"layers"}))  # so that every token has its vector
    regularizer: ClassVar[bool] = True
    weight: NonNegative = 2.0

    def build(self, width: int, embed: EmbedLayer) -> "ActivationSizeLayer":
        return ActivationSizeLayer()


class ActivationSizeLayer(LossLayer):
    """The sum over tokens; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        real = batch.token_info.document != PADDING
        return (hidden.last.float().square().mean(-1) * real).sum(), {}
