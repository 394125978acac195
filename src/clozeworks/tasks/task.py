"""What every task says of itself."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import LATE
from clozeworks.core.token_info import Kind
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.objective import Loss, LossLayer
from clozeworks.tasks.heads.task_encoder import TaskEncoder
from clozeworks.tasks.layer_selection import Reading
from clozeworks.tasks.template import InputTemplate


@dataclass(slots=True)
class Task(Loss):
    """What a labelled row is, what is predicted of it, and how good that was.

    A loss whose examples come from rows instead of text: a model has it as a head, a recipe among its losses, and so it
    is trained, saved and exported like any other. Labels and layout are fields of it, and stay with the model.

    With `readers`, recurrent layers of the task's own come between what it reads of the encoder and its head; over a
    frozen one, that is the feature-based use of Peters et al. (2017, 2018).
    """

    reads: ClassVar[frozenset[str]] = frozenset({"rows"})
    columns: ClassVar[tuple[str, ...]]  # that a row must have to be answered
    maybe: ClassVar[tuple[str, ...]] = ()  # that it may have to be learned from
    template: InputTemplate = field(default_factory=InputTemplate)
    reading: Reading = field(default_factory=Reading)
    labels: tuple[str, ...] = ()
    task_encoder: TaskEncoder | None = field(default=None, metadata=LATE)

    @property
    @abstractmethod
    def metric(self) -> str:
        """What models are chosen by, of the figures that `score` gives; the higher the better."""

    @property
    def truth(self) -> tuple[str, ...]:
        """The columns that a row must have beside these to be learned from."""
        return ("label",)

    @property
    def wants(self) -> frozenset[str]:
        return frozenset({"layers"}) if self.everywhere else frozenset()

    @property
    def everywhere(self) -> bool:
        """Whether it reads more than the last layer where it predicts."""
        return self.reading.layers or self.task_encoder is not None

    def only_the_last(self, where: str, needed: str) -> None:
        """Refuse whatever reads more than that."""
        if self.reading.layers:
            raise RecipeError(f"{where}.reading", type(self.reading).__name__, needed, "use Reading()")
        if self.task_encoder is not None:
            raise RecipeError(f"{where}.readers", type(self.task_encoder).__name__, needed, "use None")

    @property
    def kind(self) -> Kind | None:
        """Who sees whom in its examples; None: as the encoder reads any text."""
        return None

    @property
    def needs_whole_step(self) -> bool:
        """Whether rows of a step are compared with one another, so that it cannot be cut into micro-batches."""
        return False

    @property
    def sides(self) -> int:
        """2: what a decoder writes is predicted, from a source that the encoder reads."""
        return 1

    @abstractmethod
    def with_labels(self, table: Table) -> "Task":
        """A copy with the labels that the rows have."""

    @abstractmethod
    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        """The rows as examples, with their labels unless there is no `truth`; a row that cannot be one is refused."""

    @abstractmethod
    def answers(self, found: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """What the head `found` in each example, as one answer for each row of the table."""

    @abstractmethod
    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """Figures by their usual names."""

    def mean_loss(self, found: Sequence[np.ndarray], labelled: Labelled) -> float | None:
        """The mean loss of what is `whole`: batches of an evaluation do not hold the rows of a step."""
        return None

    def calibrate(self, found: Sequence[np.ndarray], labelled: Labelled, table: Table) -> "Task":
        """A copy with what only rows that were not trained on can tell, such as a threshold."""
        return self

    def calibrated_fields(self) -> dict[str, float]:
        """The fields that `settled` set, as they are."""
        return {}

    def marks(self, tokens: Tensor, tokenizer: Tokenizer | None) -> Tensor | None:
        """[B, L]: 1 at those of padded rows that are marked where `frame.marks`; None: none is, or nobody can say."""
        return torch.zeros_like(tokens).index_fill_(1, torch.tensor([0], device=tokens.device), 1)

    def number(self, label: object, table: Table, row: int) -> int:
        """Which of the labels this one is."""
        try:
            return self.labels.index(str(label))
        except ValueError:
            given, needed = f"label {label!r}", f"the model knows {', '.join(self.labels[:20])}"
            todo = "mend the row, or train with rows that have it"
            raise InputError(table.where(row), given, needed, todo) from None


class TaskLayer(LossLayer):
    @abstractmethod
    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        """Of each example of the batch what answers are made of."""

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        """The scores of all examples, or of all tokens, by the names people know."""
        return {}


class HeadLayer(TaskLayer):
    """A head over vectors of tokens, as `reading` and `readers` make them of the encoder's layers."""

    def __init__(self, spec: Task, width: int, embed: EmbedLayer):
        super().__init__()
        self.reading, self.task_encoder = spec.reading.build(), None
        self.width = spec.reading.width(width)
        if spec.task_encoder is not None:
            self.task_encoder = spec.task_encoder.build(self.width, width, embed.words.vocab)
            self.width = spec.task_encoder.out_width(self.width)

    def read(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[B, L, `width`]."""
        features = self.reading(hidden)
        return features if self.task_encoder is None else self.task_encoder(hidden, features, batch)
