"""Sentence pairs (cross-encoder): how are two texts related that are read together?"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.nn.embed import EmbedLayer
from clozeworks.tasks.classify import Classify, ClassifyLayer
from clozeworks.tasks.task import HeadParts, PretrainedHead


@dataclass(slots=True)
class Pair(Classify):
    """A cross-encoder (Devlin et al. 2018, 4.1): logits = W s + b of a summary s of two texts that are read together,
    in one template: natural language inference, paraphrase, questions and what answers them; `graded`, how alike they
    are.

    With `both` the two texts are read in both orders and s = s_ab + s_ba (Radford et al. 2018, 3.3, similarity), for
    relations without a direction. Such a model cannot tell the orders apart: of the two examples of a row the same one
    always comes first, so that not a bit of the answer changes when the texts are swapped. It costs twice as much.

    Shapes: [B, L, D] with both texts in L -> logits [N, labels]. Every pair costs a pass of the encoder: to search
    among many texts a bi-encoder (`SentenceEmbedding`) is cheaper, and mostly less exact.
    """

    name: ClassVar[str] = "pair"
    columns: ClassVar[tuple[str, ...]] = ("text_a", "text_b")
    both: bool = False

    @classmethod
    def claims(cls, head: PretrainedHead) -> bool:
        """Their class does not say whether it reads one text or two: scores, and labels that speak of entailment, are
        of pairs."""
        return head.problem == "regression" or any("entail" in label.lower() for label in head.labels)

    def head_parts(self) -> HeadParts:
        return dataclasses.replace(
            Classify.head_parts(self), own={"both": self.both, "task_encoder": self.task_encoder}
        )

    def build(self, width: int, embed: EmbedLayer) -> "PairLayer":
        return PairLayer(self, width, embed)

    def make_examples(self, table: Table, tokenizer: Tokenizer) -> Labelled:
        first, second = (tokenizer.encode([row[name] for row in table.rows]) for name in self.columns)
        if not self.both:
            return Labelled.one_each(self.template.lay(tokenizer, first, second).examples)
        ways = [way for a, b in zip(first, second, strict=True) for way in _ways(a, b)]
        examples = self.template.lay(tokenizer, [a for a, _ in ways], [b for _, b in ways]).examples
        return Labelled(examples, 2 * np.arange(len(table) + 1), np.arange(len(table)))


def _ways(a: Encoding, b: Encoding) -> list[tuple[Encoding, Encoding]]:
    """Both orders, whichever was given."""
    return [(a, b), (b, a)] if a.ids.tolist() <= b.ids.tolist() else [(b, a), (a, b)]


class PairLayer(ClassifyLayer):
    """Logits from the summary of two texts, read in one order or in both."""

    def __init__(self, spec: Pair, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.both = spec.both

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        # Rows alone do not say which two belong together.
        return {} if self.both else super().named_logits(hidden, batch)

    def summed(self, hidden: Hidden, batch: Batch) -> Tensor:
        summaries = super().summed(hidden, batch)
        if not self.both:
            return summaries
        return summaries.unflatten(0, (-1, 2)).sum(1).repeat_interleave(2, 0)  # each of the two is decided by their sum
