"""Predict the token that follows (causal language modelling), with label smoothing if asked for."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden, WordScores
from clozeworks.core.bounds import Rate
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear, linear
from clozeworks.objectives.losses.cross_entropy import Mix, cross_entropy, mixed
from clozeworks.objectives.objective import Loss, LossLayer, Needs

CERTAIN = "next_certain"  # the metric of smoothed labels: the loss as it would be without


@dataclass(slots=True)
class NextToken(Loss):
    """Cross-entropy of the next token (Radford et al. 2018, 3.1).

    logits = W_words h, with W_words the input table (tied), and a bias if asked for. Where the table is narrower than
    the model, h is mapped to its width first. Not `tied`, the table is the head's own, as wide as h. A piece of the
    predictions at a time (`cross_entropy`).

    With `smoothing` e the label is not certain (Szegedy et al. 2016; Vaswani et al. 2017, 5.4): its word has the chance
    1 - e, and `spread` = others gives e / (V - 1) to each other word (the published code, and the default); all: e / V
    to every word, its own too (torch). The loss has then a floor above 0; without gradients, as on held-out text, it is
    that of certain labels, so that perplexities stay comparable, and training reports that one as `next_certain`.

    [T, D] -> a number. O(T D V), memory of one piece of the logits.
    """

    name: ClassVar[str] = "next_token"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels"}), words="table")
    metric: ClassVar[str] = "next_accuracy"
    bias: bool = False
    tied: bool = True
    smoothing: Rate = 0.0
    spread: Literal["others", "all"] = "others"

    @property
    def scores_with_bias(self) -> bool:
        return self.bias

    def mix(self, vocab: int) -> Mix | None:
        """How sure a label is; None: certain."""
        if not self.smoothing or vocab < 2:
            return None
        each = self.smoothing / (vocab - 1 if self.spread == "others" else vocab)
        return Mix(1 - self.smoothing - (each if self.spread == "others" else 0.0), each)

    def narrowed(self, where: str) -> "tuple[NextToken, str | None]":
        return self, "dense.weight" if self.tied else None

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "NextTokenLayer":
        return NextTokenLayer(self, width, embed)


class NextTokenLayer(LossLayer):
    """Weights of `NextToken`."""

    def __init__(self, spec: NextToken, width: int, embed: EmbedLayer):
        super().__init__()
        self.metric = spec.metric
        inner, vocab = embed.words.width, embed.words.vocab
        self.dense = Linear(width, inner, bias=False) if spec.tied and inner != width else None
        self.head = None if spec.tied else Linear(width, vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab)) if spec.bias else None
        self.mix = spec.mix(vocab)
        self._embed = (embed,)  # a reference, not a child: the table is saved and counted once

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        asked = self._asked(hidden.at(batch))
        if self.mix is None or not torch.is_grad_enabled():
            loss, right = cross_entropy(asked, self._table, self.bias, batch.labels)
            return loss, {self.metric: right}
        loss, right, certain = mixed(asked, self._table, self.bias, batch.labels, self.mix)
        return loss, {self.metric: right, CERTAIN: certain}

    def read(self, x: Tensor) -> WordScores:
        """From vectors [T, D]."""
        table = self._table
        return WordScores(self._asked(x), table, table.new_zeros(len(table)) if self.bias is None else self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return linear(self._asked(x), self._table, self.bias)

    def _asked(self, x: Tensor) -> Tensor:
        return x if self.dense is None else self.dense(x)

    @property
    def _table(self) -> Tensor:
        return self._embed[0].words.table.weight if self.head is None else self.head.weight
