"""Relate tokens as the teacher's last layer does."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.losses.attention_scores import equal_heads, of_kind, pairs
from clozeworks.objectives.losses.exact import exact
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class Relations(Loss):
    """Whom tokens attend to, and how their values relate, in the last layer alone (Wang et al. 2020, 3).

    loss_i = mean_h KL(A^t_hi || A^s_hi) + mean_h KL(R^t_hi || R^s_hi),  A = softmax(q k^T / sqrt(d)),
    R = softmax(v v^T / sqrt(d))

    over all tokens i but padding, each distribution over the tokens that i sees; d is the width of a head, s the
    student and t the teacher. Both need equally many heads; width and depth are free, so that nothing has to be mapped.
    The last attention takes the dense path: quadratic in memory, too. It has no weights of its own.

    Scores [B, H, L, L] and values [B, H, L, d] of both -> a number.
    """

    name: ClassVar[str] = "relations"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher"}), hidden=frozenset({"scores", "values"}))

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.firsts[:0]

    def blocks(self, depth: int, of: int) -> tuple[int, ...]:
        return (of - 1,)

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        equal_heads(where, student, teacher, self.blocks(student.depth, teacher.depth))

    def build(self, width: int, embed: EmbedLayer) -> "RelationsLayer":
        return RelationsLayer()


class RelationsLayer(LossLayer):
    """The sum over tokens; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        theirs, seen = batch.teacher.hidden, pairs(batch)
        total = differing(of_kind(hidden, "scores")[-1], of_kind(theirs, "scores")[-1], seen)
        total = total + differing(related(hidden), related(theirs), seen)
        return total, {}


def related(hidden: Hidden) -> Tensor:
    """[B, H, L, L]: products of values."""
    values = of_kind(hidden, "values")[-1]
    return (values / math.sqrt(values.shape[-1])) @ values.transpose(-1, -2)


def differing(student: Tensor, teacher: Tensor, seen: Tensor) -> Tensor:
    """KL of the teacher's rows [B, H, L, L] from the student's, over the pairs seen: a mean over heads, then a sum."""
    mine, other = (
        torch.where(seen, torch.where(seen, exact(scores), -math.inf).log_softmax(-1), 0.0)
        for scores in (student, teacher)
    )
    return (torch.where(seen, other.exp(), 0.0) * (other - mine)).sum() / student.shape[1]
