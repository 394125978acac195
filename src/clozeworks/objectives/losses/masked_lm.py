"""Predict the hidden tokens."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.batch import Batch, Hidden
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.objective import Loss, LossLayer


@dataclass(slots=True)
class MaskedLM(Loss):
    """Cross-entropy of the hidden tokens (Devlin et al. 2018, 3.1).

    logits = W_words norm(act(W h + b)) + c, with W_words the input table (tied) and a bias of its own. The head
    runs on the hidden positions only: [T, V] logits instead of [B, L, V]. T predicted tokens, E table width.
    """

    name: ClassVar[str] = "masked_lm"
    reads: ClassVar[frozenset[str]] = frozenset({"labels"})
    activation: Activation = "gelu"
    norm: LayerNorm = field(default_factory=LayerNorm)

    def count(self, batch: Batch) -> int:
        return 0 if batch.labels is None else len(batch.labels)

    def build(self, width: int, embed: EmbedLayer) -> "MaskedLMLayer":
        return MaskedLMLayer(self, width, embed)


class MaskedLMLayer(LossLayer):
    def __init__(self, spec: MaskedLM, width: int, embed: EmbedLayer):
        super().__init__()
        self.dense = nn.Linear(width, embed.words.width)
        self.activation = FUNCTIONS[spec.activation]
        self.norm = spec.norm.build(embed.words.width)
        self.bias = nn.Parameter(torch.zeros(embed.words.table.num_embeddings))
        self._embed = (embed,)  # a reference, not a child: the table is saved and counted once

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return self._embed[0].words.logits(self.norm(self.activation(self.dense(x))), self.bias)

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.logits(hidden.at(batch))
        assert batch.labels is not None
        loss = F.cross_entropy(logits, batch.labels, reduction="sum")
        with torch.no_grad():
            # max is several times cheaper than argmax, and a tie at the top is as good as a hit
            best = logits.amax(-1) if len(logits) else logits.new_zeros(0)
            right = (logits.gather(1, batch.labels[:, None])[:, 0] >= best).sum()
        return loss, {"masked_accuracy": right}
