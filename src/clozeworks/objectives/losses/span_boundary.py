"""Predict a hidden span from the tokens on both sides of it."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.losses.cross_entropy import cross_entropy
from clozeworks.objectives.objective import Loss, LossLayer, Needs


@dataclass(slots=True)
class SpanBoundary(Loss):
    """Cross-entropy of each token of a span, given the tokens beside the span and its place (Joshi et al. 2019, 3.2).

        y = norm(act(W2 norm(act(W1 [x_left; x_right; p] + b1)) + b2)),   logits = W_words y + c

    x_left and x_right are the encoder's last vectors of the tokens just outside the span; p is a learned vector of
    `positions` numbers, one for each place in a span from its first token on; W_words is the input table (tied), c a
    bias of its own. W1: 2 D + positions -> D, W2: D -> E, the width of the table.

    As in the published code, a span that touches the first or last ordinary token of its piece is left out, although
    [CLS] or [SEP] stands there; of spans that were joined into longer ones the places from `longest` on are left out
    (15 in the published run, 20 by default there); and the sum is divided by the number of predictions plus one. That
    one is added once a step, over all micro-batches and processes.
    """

    name: ClassVar[str] = "span_boundary"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels", "spans"}), words="table")
    longest: Count = 15
    positions: Count = 200
    activation: Activation = "gelu"
    norm: LayerNorm = field(default_factory=LayerNorm)

    def count(self, batch: Batch) -> int:
        return 0 if batch.spans is None else batch.spans.within(self.longest)

    def divisor(self, count: int) -> float:
        return count + 1

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if batch.spans is None else batch.spans.edges

    def build(self, width: int, embed: EmbedLayer) -> "SpanBoundaryLayer":
        return SpanBoundaryLayer(self, width, embed)


class SpanBoundaryLayer(LossLayer):
    """Weights of `SpanBoundary`: positions in a span, two layers and a bias; the table is the embedding's."""

    def __init__(self, spec: SpanBoundary, width: int, embed: EmbedLayer):
        super().__init__()
        self.longest = spec.longest
        self.positions = nn.Embedding(spec.longest, spec.positions)
        self.first, self.first_norm = Linear(2 * width + spec.positions, width), spec.norm.build(width)
        self.second, self.second_norm = Linear(width, embed.words.width), spec.norm.build(embed.words.width)
        self.activation = FUNCTIONS[spec.activation]
        self.bias = nn.Parameter(torch.zeros(embed.words.vocab))
        self._embed = (embed,)  # a reference, not a child: the table is saved and counted once

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        spans = batch.spans
        assert spans is not None
        assert batch.labels is not None
        count = spans.within(self.longest)  # they come first
        states = hidden.last.flatten(0, 1)
        left, right = (states.index_select(0, edge[:count]) for edge in (spans.left, spans.right))
        x = torch.cat([left, right, self.positions(spans.place[:count])], -1)
        x = self.first_norm(self.activation(self.first(x)))
        x = self.second_norm(self.activation(self.second(x)))
        labels = batch.labels.index_select(0, spans.target[:count])
        loss, right = cross_entropy(x, self._embed[0].words.table.weight, self.bias, labels)
        return loss, {"boundary_accuracy": right}
