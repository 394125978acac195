"""Give the vector that a teacher has for the text, whatever tokens it reads."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import PADDING
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.losses.exact import exact
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class SentenceVectors(Loss):
    """The angle between sentence vectors of student and teacher, through one learned map (Reimers & Gurevych 2020).

    loss_n = 1 - cos(W mean_i s_i, t_n)

    for each example n, i running over its tokens, specials too. t_n is what the teacher makes of the text of the
    example, by its own tokenizer and pooling, with no token masked: neither tokens nor width nor depth must be equal.
    The paper has the squared distance, and equal widths; the angle leaves the length of vectors free. `width` is the
    teacher's; None: a run sets it. W serves training alone.

    [B, L, D] and [N, D'] -> a number. O(L D + N D D'), beside a pass of the teacher.
    """

    name: ClassVar[str] = "sentence_vectors"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher", "texts"}))
    width: Count | None = None

    def count(self, batch: Batch) -> int:
        return len(batch.firsts)

    def fitted(self, teacher: Outline) -> "SentenceVectors":
        return self if self.width is not None else replace(self, width=teacher.width)

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        if (self.width or student.width) != teacher.width:
            needed = f"{teacher.name} has sentence vectors of width {teacher.width}"
            raise RecipeError(f"{where}.width", self.width, needed, f"use {teacher.width}, or None")

    def build(self, width: int, embed: EmbedLayer) -> "SentenceVectorsLayer":
        return SentenceVectorsLayer(width, self.width or width)


class SentenceVectorsLayer(LossLayer):
    """Weights of `SentenceVectors`: what maps the student's width to the teacher's."""

    def __init__(self, width: int, theirs: int):
        super().__init__()
        self.map = Linear(width, theirs, bias=False)

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        assert batch.teacher.vectors is not None
        mine = exact(self.map(mean_vectors(hidden.last, batch)))
        return (1 - F.cosine_similarity(mine, exact(batch.teacher.vectors), dim=-1)).sum(), {}


def mean_vectors(last: Tensor, batch: Batch) -> Tensor:
    """[B, L, D] -> [N, D]: the mean over the tokens of each example."""
    flat, real = exact(last).flatten(0, 1), batch.token_info.document.flatten() != PADDING
    starts = torch.zeros(len(flat), dtype=torch.long, device=flat.device).index_fill(0, batch.firsts, 1)
    owner = starts.cumsum(0) - 1
    sums = flat.new_zeros(len(batch.firsts), flat.shape[1])
    sums = sums.index_add(0, owner, torch.where(real[:, None], flat, 0.0))
    return sums / flat.new_zeros(len(sums)).index_add(0, owner, real.to(flat.dtype))[:, None]
