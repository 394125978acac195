"""Does the second segment follow the first?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.objective import Loss, LossLayer, Needs


@dataclass(slots=True)
class SentenceRelation(Loss):
    """Cross-entropy of a two-way decision on the pooled first token.

    Label 0: the second segment follows the first; 1: it does not. What stands there instead is for the segments to say:
    one from another document (next sentence, Devlin et al. 2018, 3.1), or the two of them swapped (sentence order, Lan
    et al. 2019, 3.1). One label an example, however rows are packed.

    logits = W pooled + b, [N, D] -> [N, 2]; next to nothing beside the encoder.
    """

    name: ClassVar[str] = "sentence_pair"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"pair_label"}), hidden=frozenset({"pooled"}))

    def count(self, batch: Batch) -> int:
        return len(batch.example["pair_label"])

    def read_positions(self, batch: Batch) -> Tensor:
        return batch.firsts

    def build(self, width: int, embed: EmbedLayer) -> "SentenceRelationLayer":
        return SentenceRelationLayer(width)


class SentenceRelationLayer(LossLayer):
    """Weights of `SentenceRelation`: pooled [N, D] -> [N, 2]."""

    def __init__(self, width: int):
        super().__init__()
        self.out = Linear(width, 2)

    def logits(self, pooled: Tensor) -> Tensor:
        return self.out(pooled)

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert hidden.pooled is not None
        logits, labels = self.logits(hidden.pooled), batch.example["pair_label"]
        with torch.no_grad():
            right = (logits.argmax(-1) == labels).sum()
        return F.cross_entropy(logits, labels, reduction="sum"), {"pair_accuracy": right}
