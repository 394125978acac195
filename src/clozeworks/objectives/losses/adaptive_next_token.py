"""Predict the token that follows, frequent words first."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Natural
from clozeworks.core.errors import RecipeError
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear, linear
from clozeworks.nn.words import AdaptiveLayer, cluster_of, members
from clozeworks.objectives.losses import cross_entropy
from clozeworks.objectives.objective import Corruption, Loss, LossLayer, Needs


@dataclass(slots=True)
class AdaptiveNextToken(Loss):
    """Cross-entropy of the next token by clusters of words (Grave et al. 2017; Dai et al. 2019).

    p(w) = softmax(z_0)_w in the first cluster, whose softmax has one more entry c for each of the others; there
    p(w) = softmax(z_0)_c softmax(z_c)_w. z_k = W_k P_k^T h + b_k, with W_k and P_k those of the way in (`Adaptive`);
    clusters in `own` have a P of their own. Only vectors whose label is in a cluster meet its words: with cutoffs in
    order of frequency most never meet the rare ones, and the loss costs a fraction of V D a prediction.

    [T, D] of the predicted tokens -> a number.
    """

    name: ClassVar[str] = "next_token"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels"}), words="clusters")
    own: tuple[Natural, ...] = (0,)

    def check(self, where: str) -> None:
        if any(cluster < 0 for cluster in self.own) or list(self.own) != sorted(set(self.own)):
            needed = "numbers of clusters, from 0, in order are needed"
            raise RecipeError(f"{where}.own", list(self.own), needed, "(0,) is published")

    def check_model(self, where: str, model: Architecture, corruption: Corruption | None) -> None:
        Loss.check_model(self, where, model, corruption)
        given = model.top.out_width(model.width)
        if given != model.width:
            needed = f"words are as wide as the model, {model.width}, and its stack gives {given}"
            raise RecipeError(where, type(self).__name__, needed, f"use a stack that gives {model.width}, or NextToken")

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "AdaptiveNextTokenLayer":
        return AdaptiveNextTokenLayer(self, width, embed)


class AdaptiveNextTokenLayer(LossLayer):
    """Weights of `AdaptiveNextToken`: biases, the entries of clusters, and projections of its own."""

    def __init__(self, spec: AdaptiveNextToken, width: int, embed: EmbedLayer):
        super().__init__()
        words = embed.words
        assert isinstance(words, AdaptiveLayer)
        self.bias = nn.Parameter(torch.zeros(words.vocab))
        tails = len(words.ends) - 1
        self.clusters = Linear(words.width, tails) if tails else None
        own = [k for k in spec.own if k <= tails and words.projections]
        self.projections = nn.ModuleDict({str(k): Linear(words.widths[k], width, bias=False) for k in own})
        self._embed = (embed,)  # a reference, not a child: the tables are saved and counted once

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        x, labels, ends = hidden.at(batch), batch.labels, self._words.ends
        tables, biases = self._words.weights, self.bias.split(self._words.sizes)
        cluster = cluster_of(labels, ends)
        asked, entry = self._asked(x, 0), torch.where(cluster > 0, ends[0] + cluster - 1, labels)
        loss, own, best = cross_entropy.compared(asked, *self._head(tables[0], biases[0]), entry)
        for k, places in enumerate(members(labels, ends)):
            if k > 0 and len(places):
                tail = self._asked(x.index_select(0, places), k)
                label = labels.index_select(0, places) - ends[k - 1]
                loss = loss + cross_entropy.cross_entropy(tail, tables[k], biases[k], label)[0]
        return loss, {"next_accuracy": self._right(x, asked, labels, own, best)}

    @torch.no_grad()
    def _right(self, x: Tensor, asked: Tensor, labels: Tensor, own: Tensor, best: Tensor) -> Tensor:
        """How many labels no other word beats. Where the best entry of the first softmax is a word, no word of another
        cluster comes near it; only where it is a cluster are the words of all compared."""
        right = own >= best
        if self.clusters is None or x.is_meta:
            return right.sum()
        undecided = (self.clusters(asked).amax(-1).to(best.dtype) >= best).nonzero()[:, 0]
        for some in undecided.split(max(1, cross_entropy.BUDGET // (4 * self._words.vocab))):
            right[some] = self.logits(x[some]).argmax(-1) == labels[some]
        return right.sum()

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]: logarithms of probabilities."""
        tables, biases = self._words.weights, self.bias.split(self._words.sizes)
        head = linear(self._asked(x, 0), *self._head(tables[0], biases[0])).log_softmax(-1)
        parts = [head[..., : len(tables[0])]]
        for k in range(1, len(tables)):
            inside = linear(self._asked(x, k), tables[k], biases[k]).log_softmax(-1)
            parts.append(head[..., len(tables[0]) + k - 1, None] + inside)
        return torch.cat(parts, -1)

    def _head(self, table: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The first softmax: the words of the first cluster, then an entry for each of the others."""
        if self.clusters is None:
            return table, bias
        return torch.cat([table, self.clusters.weight]), torch.cat([bias, self.clusters.bias])

    def _asked(self, x: Tensor, cluster: int) -> Tensor:
        """[..., D] -> [..., width of the cluster]: what is compared with its words."""
        weight = self._words.projection(cluster)
        if str(cluster) in self.projections:
            weight = cast(Linear, self.projections[str(cluster)]).weight
        return x if weight is None else linear(x, weight.t(), None)

    @property
    def _words(self) -> AdaptiveLayer:
        words = self._embed[0].words
        assert isinstance(words, AdaptiveLayer)
        return words
