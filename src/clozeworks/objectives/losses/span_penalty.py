"""A price on looking far back."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import walk
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.objective import Corruption, Loss, LossLayer, Needs


@dataclass(slots=True)
class SpanPenalty(Loss):
    """The spans that `AdaptiveSpan` learns, to be short (Sukhbaatar et al. 2019, 2.2).

    weight * sum over layers of the mean over heads of z

    It depends on parameters alone: every step has it once, whatever its number of predictions, pieces and processes. It
    is minimised with the losses and reported apart from them, in training only. A span that layers share counts once a
    layer. `average_span` is the mean over layers of ceil(mean z) + ramp, as the published code tells it.

    Spans [layers] -> a number; costs nothing.
    """

    name: ClassVar[str] = "span_penalty"
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"penalties"}))
    regularizer: ClassVar[bool] = True

    def check_model(self, where: str, model: Architecture, corruption: Corruption | None) -> None:
        Loss.check_model(self, where, model, corruption)
        if not any(isinstance(part, AdaptiveSpan) for _, part in walk(model.top)):
            todo = "remove it, or use Attention(bias=AdaptiveSpan(...))"
            raise RecipeError(where, type(self).__name__, "no span is learned", todo)

    def count(self, batch: Batch) -> int:
        """One a batch: the mean over the batches of a step is what each of them has."""
        return 1

    def build(self, width: int, embed: EmbedLayer) -> "SpanPenaltyLayer":
        return SpanPenaltyLayer()


class SpanPenaltyLayer(LossLayer):
    """The sum over layers; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return hidden.penalties["span"].sum(), {"average_span": hidden.penalties["average_span"].mean()}
