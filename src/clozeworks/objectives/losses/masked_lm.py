"""Predict the masked tokens."""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden, WordScores
from clozeworks.core.errors import RecipeError
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear, linear
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.losses.cross_entropy import cross_entropy
from clozeworks.objectives.objective import Loss, LossLayer, Needs

Over = Literal["tokens", "hidden"]  # all of them but padding, or those that were hidden


@dataclass(slots=True)
class MaskedLM(Loss):
    """Cross-entropy of the masked tokens (Devlin et al. 2018, 3.1).

    logits = W_words norm(act(W h + b)) + c, with W_words the input table (tied) and a bias of its own. The head
    runs on the hidden positions only, a piece of them at a time (`cross_entropy`). T predicted tokens, E table width.
    `mapped`: logits = W_words M norm(act(W h + b)) + c, where W and the norm are as wide as the model, and M [E, D]
    leads to a narrower table. `plain`: logits = W h, with a table of the head's own, as wide as h, and nothing else
    (Kitaev et al. 2020, code).

    [T, D] -> a number. O(T (D E + E V)), memory of one piece of the logits.
    """

    name: ClassVar[str] = "masked_lm"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels"}), words="table")
    activation: Activation = "gelu"
    norm: LayerNorm = field(default_factory=LayerNorm)
    plain: bool = False
    mapped: bool = False

    def check(self, where: str) -> None:
        if self.plain and self.mapped:
            raise RecipeError(f"{where}.mapped", True, "a plain head is as wide as the model", "use false")

    @property
    def scores_with_bias(self) -> bool:
        return not self.plain

    def narrowed(self, where: str) -> "tuple[MaskedLM, str | None]":
        return (self, None) if self.plain else (dataclasses.replace(self, mapped=True), "map.weight")

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "MaskedLMLayer":
        return MaskedLMLayer(self, width, embed)


class MaskedLMLayer(LossLayer):
    """Weights of `MaskedLM`: W, b, a norm and c; the table is the embedding's."""

    def __init__(self, spec: MaskedLM, width: int, embed: EmbedLayer):
        super().__init__()
        inner, vocab = embed.words.width, embed.words.vocab
        self.head = Linear(width, vocab, bias=False) if spec.plain else None
        own = width if spec.mapped else inner
        self.dense = None if spec.plain else Linear(width, own)
        self.activation = FUNCTIONS[spec.activation]
        self.norm = None if spec.plain else spec.norm.build(own)
        self.map = Linear(width, inner, bias=False) if spec.mapped else None
        self.bias = None if spec.plain else nn.Parameter(torch.zeros(vocab))
        self._embed = (embed,)  # a reference, not a child: the table is saved and counted once

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        loss, right = cross_entropy(self._found(hidden, batch, "hidden"), self._table, self.bias, batch.labels)
        return loss, {"masked_accuracy": right}

    def asked(self, hidden: Hidden, batch: Batch, over: Over) -> Tensor:
        """[T, E] of the targets, or [B * L, E] of all tokens, for another loss; kept: it is made once a pass."""
        if over not in hidden.shared:
            hidden.shared[over] = self._found(hidden, batch, over)
        return hidden.shared[over]

    def _found(self, hidden: Hidden, batch: Batch, over: Over) -> Tensor:
        shared = hidden.shared
        if over in shared:
            return shared[over]
        if "tokens" in shared and batch.targets is not None:
            return shared["tokens"].index_select(0, batch.targets)
        return self._asked(hidden.last.flatten(0, 1) if over == "tokens" else hidden.at(batch))

    def words(self, asked: Tensor) -> WordScores:
        return WordScores(
            asked, self._table, self._table.new_zeros(len(self._table)) if self.bias is None else self.bias
        )

    def read(self, x: Tensor) -> WordScores:
        """From vectors [T, D]."""
        return self.words(self._asked(x))

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return linear(self._asked(x), self._table, self.bias)

    def _asked(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., E]: what is compared with every word."""
        if self.dense is None or self.norm is None:
            return x
        x = self.norm(self.activation(self.dense(x)))
        return x if self.map is None else self.map(x)

    @property
    def _table(self) -> Tensor:
        return self._embed[0].words.table.weight if self.head is None else self.head.weight
