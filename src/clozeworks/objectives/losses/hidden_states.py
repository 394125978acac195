"""Give the teacher's hidden states, layer by layer."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.losses.exact import exact
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class HiddenStates(Loss):
    """The distance of hidden states, through one learned map from the student's width to the teacher's (Jiao et al.
    2019, 3.1).

    loss_i = sum_m mean_d (W s_i^m + b - t_i^g(m))^2,  m = 0 ... M,  g(m) = m N / M

    for M layers of the student and N of the teacher, layer 0 being the output of the embedding, over all tokens but
    padding. W and b are shared by all layers, as in the published code (the paper has a map for the embedding beside
    it), and serve training alone. `width` is the teacher's, None if it is the student's own.

    [B, L, D] and [B, L, D'] of each layer -> a number. O(M L D D'), beside a pass of the teacher.
    """

    name: ClassVar[str] = "hidden_states"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher"}), hidden=frozenset({"layers"}))
    width: Count | None = None

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        if (self.width or student.width) != teacher.width:
            needed = f"{teacher.name} has hidden states of width {teacher.width}"
            raise RecipeError(f"{where}.width", self.width, needed, f"use {teacher.width}")
        divides(where, student, teacher)

    def build(self, width: int, embed: EmbedLayer) -> "HiddenStatesLayer":
        return HiddenStatesLayer(width, self.width or width)


class HiddenStatesLayer(LossLayer):
    """Weights of `HiddenStates`: what maps the student's width to the teacher's."""

    def __init__(self, width: int, theirs: int):
        super().__init__()
        self.map = Linear(width, theirs)

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        theirs = batch.teacher.hidden.layers
        stride = (len(theirs) - 1) // (len(hidden.layers) - 1)
        parts = []
        for mine, other in zip(hidden.layers, theirs[::stride], strict=True):
            gap = exact(self.map(batch.solid(mine))) - exact(batch.solid(other))
            parts.append(gap.square().mean(-1).sum())
        return torch.stack(parts).sum(), {}


def divides(where: str, student: Outline, teacher: Outline) -> None:
    """Refuse two depths of which one is no multiple of the other."""
    if teacher.depth % student.depth:
        given = f"{student.depth} layers, and {teacher.name} has {teacher.depth}"
        nearest = [str(n) for n in range(1, teacher.depth + 1) if teacher.depth % n == 0]
        todo = f"set encoder.stack.depth to one of {', '.join(nearest)}"
        raise RecipeError(where, given, "layers of the teacher are matched at equal distances", todo)
