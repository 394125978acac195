"""Which of several texts is the right one?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.batch import Batch, Hidden
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.linear import Linear
from clozeworks.objectives.objective import Loss, LossLayer


@dataclass(slots=True)
class Choice(Loss):
    """Cross-entropy of the right option among those of its question (Radford et al. 2018, 3.3).

    score = w h + b of one token h of each example, p = softmax over the examples of a question. Columns of the batch,
    one entry an example: `choice`, the number of its question; `choice_at`, the flat offset of its token;
    `choice_right`, whether it is the right one. One prediction a question, however many options it has. Only a task
    writes these columns: a batch without them passes the loss by. Departure: no dropout on h.
    """

    name: ClassVar[str] = "choice"
    reads: ClassVar[frozenset[str]] = frozenset({"choice"})

    def computed(self, batch: Batch) -> bool:
        return "choice" in batch.example

    def count(self, batch: Batch) -> int:
        return int(batch.example["choice_right"].sum()) if self.computed(batch) else 0

    def places(self, batch: Batch) -> Tensor:
        return batch.example["choice_at"]

    def build(self, width: int, embed: EmbedLayer) -> "ChoiceLayer":
        return ChoiceLayer(width)


class ChoiceLayer(LossLayer):
    def __init__(self, width: int):
        super().__init__()
        self.score = Linear(width, 1)

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [...]."""
        return self.score(x)[..., 0]

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        question, right = batch.example["choice"], batch.example["choice_right"].bool()
        scores = self.logits(hidden.last.flatten(0, 1).index_select(0, batch.example["choice_at"])).float()
        questions, question = question.unique(return_inverse=True)
        best = scores.detach().new_full((len(questions),), -torch.inf)
        best = best.scatter_reduce(0, question, scores.detach(), "amax")
        total = torch.zeros_like(best).index_add(0, question, (scores - best[question]).exp())
        loss = (total.log() + best)[question[right]] - scores[right]
        return loss.sum(), {"choice_accuracy": (scores >= best[question])[right].sum()}
