"""An objective is three choices: how documents become examples, what is hidden, what is predicted."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import ExamplePlan, RaggedBatch, Vocabulary
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import Kind
from clozeworks.nn.embed import EmbedLayer

Part = TypeVar("Part", bound=Spec)


class Text(Protocol):
    """What segments need of a corpus: where sentences and documents begin and end."""

    @property
    def sentences(self) -> np.ndarray: ...  # int64 [S + 1] token offsets

    @property
    def documents(self) -> np.ndarray: ...  # int64 [D + 1] sentence offsets


@dataclass(slots=True)
class Segments(Spec):
    """How documents become examples of at most `length` tokens."""

    writes: ClassVar[frozenset[str]] = frozenset()
    length: int = 128

    @property
    def rooms(self) -> tuple[int, ...]:
        """The tokens that each side of an example has room for."""
        return (self.length,)

    def check(self, where: str) -> None:
        if self.length < 8:
            raise RecipeError(f"{where}.length", self.length, "an example needs at least 8 tokens", "128 is usual")

    @abstractmethod
    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """The examples of one epoch, a pure function of text and key."""

    def notes(self, text: Text) -> list[str]:
        """What a user should know before this text becomes examples."""
        return []


@dataclass(slots=True)
class Corruption(Spec):
    """What is hidden from the model, and how the answer is kept out of its sight.

    Every epoch cuts and hides anew. With `copies` = k the data is static: epoch e repeats epoch e mod k, in another
    order, as if k copies had been written to disk (ten of them over forty epochs show each example four times).
    """

    writes: ClassVar[frozenset[str]] = frozenset({"labels"})
    kind: ClassVar[Kind] = "full"
    hides: ClassVar[Literal["replacing", "time", "two streams"]] = "replacing"
    sides: ClassVar[int] = 1  # 2: an example is a source and a target, rows of their own
    copies: int | None = field(default=None, kw_only=True)

    def check(self, where: str) -> None:
        if self.copies is not None and self.copies < 1:
            raise RecipeError(
                f"{where}.copies", self.copies, "1 or more copies, or None for new masks each epoch", "10 is usual"
            )

    @property
    def needs_counts(self) -> bool:
        """Whether `corrupt` wants to know how often the corpus has each token (`vocabulary.counts`)."""
        return False

    @abstractmethod
    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        """Hide and label. keys [examples]: an example's draws depend on its own key alone."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What a loss that compares two models must know of each, before either is built."""

    name: str
    width: int
    heads: tuple[int | None, ...]  # of each block, None where it does not attend
    losses: frozenset[str]

    @property
    def depth(self) -> int:
        return len(self.heads)


@dataclass(slots=True)
class Loss(Spec):
    """What is predicted. The sum over predictions is divided by their number in the whole step, over all ranks, or by
    what `divisor` makes of it.

    It may read the head of another loss by that one's name, and `teacher`, what another model found in the same batch;
    without a teacher it is then not computed. `needs` tells what of a pass it reads beside the last hidden states, the
    student's and the teacher's alike: layers, scores, values (of the attention in its `blocks`).
    """

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[str]] = frozenset()
    regularizer: ClassVar[bool] = False  # a price, minimised in training, and no part of the loss that is told
    scores: ClassVar[Literal["table", "clusters"] | None] = None  # the words of the way in that it reads on the way out
    one_way: ClassVar[bool] = False  # it reads rows that a stack with two ways read one way, half as wide as the two
    weight: float = 1.0

    @property
    def wants(self) -> frozenset[str]:
        """What it needs of a pass, as it is set."""
        return self.needs

    @property
    def pools(self) -> bool:
        """Whether it reads the pooled vector."""
        return "pooled" in self.reads

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """How many predictions the batch holds; known on the host before the forward pass."""

    def computed(self, batch: Batch) -> bool:
        """Whether the batch has all that it reads: a teacher's findings and a task's columns need not be there."""
        return "teacher" not in self.reads or batch.teacher is not None

    def divisor(self, count: int) -> float:
        """What the sum over `count` predictions, those of a whole step or of held-out text, is divided by."""
        return count

    def read_positions(self, batch: Batch) -> Tensor | None:
        """Flat offsets of the tokens whose vectors it reads, each once; None: it may read any."""
        return None

    def blocks(self, depth: int, of: int) -> tuple[int, ...]:
        """The blocks whose scores or values it reads, in a model `of` so many, where the student has `depth`."""
        return ()

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        """Raise `RecipeError` if it cannot compare these two."""

    @abstractmethod
    def build(self, width: int, embed: EmbedLayer) -> "LossLayer": ...


class LossLayer(nn.Module):
    def connect(self, heads: Mapping[str, "LossLayer"]) -> None:
        """Get to know the heads of the losses it reads, once all are built; to refer to, not to own."""

    @abstractmethod
    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss, and summed metrics by name (divided by the count of predictions)."""


@dataclass(slots=True)
class Objective(Spec):
    segments: Segments
    corruption: Corruption | None
    losses: tuple[Loss, ...]

    def check(self, where: str) -> None:
        written = {"pooled", "teacher", "rows"} | {loss.name for loss in self.losses}
        written |= self.segments.writes | (self.corruption.writes if self.corruption else frozenset())
        for index, loss in enumerate(self.losses):
            for column in sorted(loss.reads - written):
                raise RecipeError(
                    f"{where}.losses.{index}",
                    type(loss).__name__,
                    f"it reads {column}, which nothing writes",
                    f"remove it, or take {_writers(column)}",
                )
        if self.corruption is not None and len(self.segments.rooms) < self.corruption.sides:
            raise RecipeError(
                f"{where}.corruption",
                type(self.corruption).__name__,
                f"it writes a target from a source, and examples of {type(self.segments).__name__} have one side",
                "use segments=Pairs, or another corruption",
            )
        names = [loss.name for loss in self.losses]
        if len(set(names)) < len(names):
            raise RecipeError(f"{where}.losses", ", ".join(names), "each loss may stand once", "remove the second")


def _writers(column: str) -> str:
    """The parts that would write a column."""
    names = []
    for base, role in ((Segments, "segments"), (Corruption, "corruption")):
        names += [f"{role}={part.__name__}" for part in _finished(base) if column in part.writes]
    names += [f"{part.__name__} among the losses" for part in _finished(Loss) if part.name == column]
    return " or ".join(sorted(set(names))) or "a part that writes it"


def _finished(base: type[Part]) -> Iterator[type[Part]]:
    """The parts below a base that leave nothing abstract."""
    for part in base.__subclasses__():
        if not any(getattr(getattr(part, name), "__isabstractmethod__", False) for name in dir(part)):
            yield part
        yield from _finished(part)
