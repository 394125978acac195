"""What a run asks of its data and of its evaluation: here pretraining and fine-tuning differ while they train."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from clozeworks.core.batch import Batch
from clozeworks.data.shards.corpus import Corpus
from clozeworks.model import Model
from clozeworks.optim.keep import Score


class Batches(Protocol):
    """The batches of a run from step `start` on, a list of micro-batches each; `position` is where the last one ends.

    `PretrainingBatches` makes them of text, `LabelledBatches` of a table.
    """

    start: int
    position: dict[str, Any]
    notes: list[str]
    corpora: list[tuple[Corpus, float]]  # its text with weights; of a table none

    @property
    def phase_ends(self) -> list[int]:
        """The last steps of its phases."""
        ...

    def __iter__(self) -> Iterator[list[Batch]]: ...

    def check_first_examples(self) -> None:
        """Refuse data of which no example can be made."""
        ...


class Evaluator(Protocol):
    """Metrics on what the model is not trained on, and early stopping by them; one that is false measures nothing.

    `HeldOutEvaluator` has held-out text, `TaskEvaluator` the rows of a table.
    """

    notes: list[str]

    def measure(self, model: Model, teach: Callable[[Batch], Batch] | None) -> dict[str, Any]: ...

    def score(self, metrics: dict[str, Any]) -> Score:
        """How good they are: the lowest is the best."""
        ...

    def warn(self, step: int, metrics: dict[str, Any]) -> str | None:
        """What the user should know of the metrics at a step while there is time to change something."""
        ...

    def should_stop(self, scores: dict[int, Score]) -> bool:
        """Early stopping: whether to stop, after the evaluations at these steps."""
        ...
