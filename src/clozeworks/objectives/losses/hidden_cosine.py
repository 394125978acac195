"""Point where the teacher's hidden states point."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.losses.exact import exact
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class HiddenCosine(Loss):
    """The angle between the last hidden states of student and teacher (Sanh et al. 2019, 3).

    loss_i = 1 - s_i . t_i / (|s_i| |t_i|)

    over all tokens but padding. Both must have one width, and their coordinates one meaning: the student should start
    from the teacher's layers. `HiddenStates` maps one width to another. It has no weights of its own.

    [B, L, D] of both -> a number. O(L D), beside a pass of the teacher.
    """

    name: ClassVar[str] = "hidden_cosine"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher"}))

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        if student.width != teacher.width:
            given = f"width {student.width}, and {teacher.name} has {teacher.width}"
            needed = "a cosine needs equal widths"
            raise RecipeError(where, given, needed, f"use HiddenStates(width={teacher.width}), which has a map")

    def build(self, width: int, embed: EmbedLayer) -> "HiddenCosineLayer":
        return HiddenCosineLayer()


class HiddenCosineLayer(LossLayer):
    """The sum over tokens; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        student, teacher = batch.solid(hidden.last), batch.solid(batch.teacher.hidden.last)
        return (1 - F.cosine_similarity(exact(student), exact(teacher), dim=-1)).sum(), {}
