"""A price on activations that change from token to token."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import NonNegative
from clozeworks.core.token_info import PADDING
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.objective import Loss, LossLayer, Needs


@dataclass(slots=True)
class ActivationChange(Loss):
    """Activations of the last layer, to change slowly (Merity et al. 2017: "temporal activation regularisation", TAR).

    weight * mean over neighbouring tokens and units of (h_{t+1} - h_t)^2, with h before anything is dropped of it

    Neighbours are of one text: nothing is compared over a border, nor with what an earlier step read. Minimised with
    the losses and reported apart from them.

    [B, L, D] -> a number. O(L D): next to nothing.
    """

    name: ClassVar[str] = "activation_change"
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"layers"}))
    regularizer: ClassVar[bool] = True
    weight: NonNegative = 1.0

    def count(self, batch: Batch) -> int:
        """Neighbours: every token but the first of each text."""
        return batch.real - len(batch.firsts)

    def build(self, width: int, embed: EmbedLayer) -> "ActivationChangeLayer":
        return ActivationChangeLayer()


class ActivationChangeLayer(LossLayer):
    """The sum over tokens; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h, document = hidden.layers[-1].float(), batch.token_info.document
        near = (document[:, 1:] == document[:, :-1]) & (document[:, 1:] != PADDING)
        return ((h[:, 1:] - h[:, :-1]).square().mean(-1) * near).sum(), {}
