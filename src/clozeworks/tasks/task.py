"""What every task says of itself."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clozeworks.batch import Batch, Hidden, Kind
from clozeworks.data.labelled import Labelled
from clozeworks.data.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.errors import InputError
from clozeworks.objectives.objective import Loss, LossLayer
from clozeworks.tasks.frame import Frame
from clozeworks.tasks.reading import Reading


@dataclass(slots=True)
class Task(Loss):
    """What a labelled row is, what is predicted of it, and how good that was.

    A loss whose examples come from rows instead of text: a model has it as a head, a recipe among its losses, and so it
    is trained, saved and exported like any other. Labels and layout are fields of it, and stay with the model.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"rows"})
    columns: ClassVar[tuple[str, ...]]  # that a row must have to be answered
    maybe: ClassVar[tuple[str, ...]] = ()  # that it may have to be learned from
    frame: Frame = field(default_factory=Frame)
    reading: Reading = field(default_factory=Reading)
    labels: tuple[str, ...] = ()

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
        return frozenset({"layers"}) if self.reading.layers else frozenset()

    @property
    def kind(self) -> Kind | None:
        """Who sees whom in its examples; None: as the encoder reads any text."""
        return None

    @property
    def whole(self) -> bool:
        """Whether rows of a step are compared with one another, so that it cannot be cut into micro-batches."""
        return False

    @property
    def sides(self) -> int:
        """2: what a decoder writes is predicted, from a source that the encoder reads."""
        return 1

    @abstractmethod
    def fitted(self, table: Table) -> "Task":
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

    def compared(self, found: Sequence[np.ndarray], labelled: Labelled) -> float | None:
        """The mean loss of what is `whole`: batches of an evaluation do not hold the rows of a step."""
        return None

    def settled(self, found: Sequence[np.ndarray], labelled: Labelled, table: Table) -> "Task":
        """A copy with what only rows that were not trained on can tell, such as a threshold."""
        return self

    def facts(self) -> dict[str, float]:
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
    def found(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        """Of each example of the batch what answers are made of."""

    def shown(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        """The scores of all examples, or of all tokens, by the names people know."""
        return {}
