"""Learn how sure a teacher is of every label."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Positive
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.objective import Loss, LossLayer, Needs
from clozeworks.tasks.classify import ClassifyLayer

Of = Literal["classify", "pair"]


@dataclass(slots=True)
class SoftLabels(Loss):
    """The teacher's distribution over the labels as the target (Hinton et al. 2015, 2).

    loss_n = T^2 KL(softmax(t_n / T) || softmax(s_n / T))

    with logits s of the student's own head, t of the teacher's, and temperature T. Of several labels a text: the mean
    of T^2 KL over the labels, each a decision of its own; of numbers: (s_n - t_n)^2. It stands beside the task it is
    `of`, whose head gives logits of whole examples, and has no weights of its own.

    [N, labels] of both -> a number, beside a pass of the teacher.
    """

    name: ClassVar[str] = "soft_labels"
    temperature: Positive = 2.0
    of: Of = "classify"

    @property
    def needs(self) -> Needs:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Needs(reads=frozenset({"teacher", self.of}))

    def count(self, batch: Batch) -> int:
        return len(batch.firsts)

    def computed(self, batch: Batch) -> bool:
        return batch.teacher is not None and batch.teacher.logits is not None

    def build(self, width: int, embed: EmbedLayer) -> "SoftLabelsLayer":
        return SoftLabelsLayer(self.temperature, self.of)


class SoftLabelsLayer(LossLayer):
    """The sum over examples, by the head of the task; no weights."""

    def __init__(self, temperature: float, of: Of):
        super().__init__()
        self.temperature = temperature
        self.of: Of = of
        self._head: tuple[ClassifyLayer, ...] = ()

    def connect(self, heads: Mapping[str, LossLayer]) -> None:
        head = heads[self.of]
        assert isinstance(head, ClassifyLayer)
        self._head = (head,)  # a reference, not a child

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        assert batch.teacher.logits is not None
        head = self._head[0]
        return head.divergence(head.logits(hidden, batch), batch.teacher.logits, self.temperature), {}


def soft_labels(head: LossLayer | None, of: str, weight: float) -> SoftLabels | None:
    """The loss beside the task `of` this name; None where its head gives no logits of whole examples."""
    names = {name: name for name in get_args(Of)}
    return SoftLabels(weight=weight, of=names[of]) if isinstance(head, ClassifyLayer) and of in names else None


def read_logits(head: LossLayer | None, hidden: Hidden, batch: Batch) -> Tensor | None:
    """[N, outputs] of a teacher's head, where it has such a one."""
    return head.logits(hidden, batch) if isinstance(head, ClassifyLayer) else None
