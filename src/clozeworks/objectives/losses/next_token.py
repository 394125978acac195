"""Predict the token that follows."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.batch import Batch, Hidden
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.linear import Linear, linear
from clozeworks.objectives.losses.cross_entropy import cross_entropy
from clozeworks.objectives.objective import Loss, LossLayer


@dataclass(slots=True)
class NextToken(Loss):
    """Cross-entropy of the next token (Radford et al. 2018, 3.1).

    logits = W_words h, with W_words the input table (tied), and a bias if asked for. Where the table is narrower than
    the model, h is mapped to its width first. A piece of the predictions at a time (`cross_entropy`).
    """

    name: ClassVar[str] = "next_token"
    reads: ClassVar[frozenset[str]] = frozenset({"labels"})
    metric: ClassVar[str] = "next_accuracy"
    bias: bool = False

    def count(self, batch: Batch) -> int:
        return 0 if batch.labels is None else len(batch.labels)

    def places(self, batch: Batch) -> Tensor | None:
        return batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "NextTokenLayer":
        return NextTokenLayer(self, width, embed)


class NextTokenLayer(LossLayer):
    def __init__(self, spec: NextToken, width: int, embed: EmbedLayer):
        super().__init__()
        self.metric = spec.metric
        inner, vocab = embed.words.width, embed.words.table.num_embeddings
        self.dense = Linear(width, inner, bias=False) if inner != width else None
        self.bias = nn.Parameter(torch.zeros(vocab)) if spec.bias else None
        self._embed = (embed,)  # a reference, not a child: the table is saved and counted once

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        loss, right = cross_entropy(self._asked(hidden.at(batch)), self._table, self.bias, batch.labels)
        return loss, {self.metric: right}

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return linear(self._asked(x), self._table, self.bias)

    def _asked(self, x: Tensor) -> Tensor:
        return x if self.dense is None else self.dense(x)

    @property
    def _table(self) -> Tensor:
        return self._embed[0].words.table.weight
