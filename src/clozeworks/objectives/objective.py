"""An objective is three choices: how documents become examples, what is hidden, what is predicted."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import LARGEST, Bound, Count, NonNegative
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import ExamplePlan, RaggedBatch, Vocabulary
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import Kind
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.embed import Embed, EmbedLayer

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
    continues: ClassVar[bool] = False  # a row begins where another one ended, which a stack may remember
    kinds: ClassVar[int] = 2  # different segments in an example, at most
    length: Annotated[int, Bound(8, LARGEST)] = 128

    @property
    def rooms(self) -> tuple[int, ...]:
        """The tokens that each side of an example has room for."""
        return (self.length,)

    @abstractmethod
    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        """The examples of one epoch, a pure function of text and key."""

    def check_model(self, where: str, model: Architecture, corruption: "Corruption") -> None:
        """Raise `RecipeError` if its examples are not what the stack is made for; `where` is the recipe."""
        memory = model.stack.memory
        if memory > 0 and not self.continues:
            needed = f"rows of {type(self).__name__} do not continue where others ended"
            raise RecipeError(f"{where}.encoder.stack.memory", memory, needed, "take segments=Stream, or use 0")
        if memory > 0 and model.stack.stateful and hasattr(self, "reuse"):
            needed = "rows continue behind their first tokens, and a state is of the last one alone"
            raise RecipeError(f"{where}.objective.segments", type(self).__name__, needed, "use Stream, or memory 0")
        if reads_one_way(model, corruption) and not getattr(self, "both", False):
            needed = "nothing would be read from its end"
            raise RecipeError(f"{where}.objective.segments", type(self).__name__, needed, "use Stream(both=true)")
        self.check_embed(f"{where}.encoder.embed", model.embed)

    def check_embed(self, where: str, embed: Embed) -> None:
        """Raise `RecipeError` if the embedding, at path `where`, has no vector for some segment or position."""
        if 1 < embed.segments < self.kinds:
            needed = f"examples of {type(self).__name__} have {self.kinds} segments"
            raise RecipeError(f"{where}.segments", embed.segments, needed, f"use {self.kinds}, or 0 for none")
        if getattr(self, "both", False) and embed.positions is not None and embed.positions.limit is not None:
            needed = "positions of rows that are read from their end run down from 0, and it has none below 0"
            todo = "use SinusoidalPositions() or None, or segments.both=false"
            raise RecipeError(f"{where}.positions", type(embed.positions).__name__, needed, todo)

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
    copies: Count | None = field(default=None, kw_only=True)

    def at_rate(self, rate: float, where: str) -> "Corruption":
        """The same with another share of the tokens masked, where masking has a rate."""
        needed = f"{type(self).__name__} has no mask rate"
        raise RecipeError(where, rate, needed, "use None, or a corruption that masks tokens")

    def check_model(self, where: str, model: Architecture) -> None:
        """Raise `RecipeError` if the model would see what it is to predict; `where` is the recipe."""
        path, name, stack = f"{where}.objective.corruption", type(self).__name__, model.top
        if self.sides == 2 and model.decoder is None:
            needed = "it writes a target from a source, which takes a decoder"
            raise RecipeError(path, name, needed, "give the recipe one, or use Shift")
        if self.sides == 1 and model.decoder is not None:
            needed = "a decoder writes a target from a source"
            raise RecipeError(path, name, needed, "use Translate, with segments=Pairs, or decoder=None")
        for mixer in stack.mixers():
            if self.kind not in stack.sees(mixer):
                bias = getattr(mixer, "bias", None)
                narrow = bias is not None and self.kind not in bias.honours
                blind = f"{type(bias).__name__} in {type(mixer).__name__}" if narrow else type(mixer).__name__
                needed = f"{blind} cannot hide what {self.kind} visibility hides"
                raise RecipeError(path, name, needed, "change the mixer or the corruption")
        if self.hides == "two streams" and stack.streams != 2:
            needed = "its rows hold the answers, which a stack with one stream can simply read"
            raise RecipeError(path, name, needed, "use a stack with two streams, or another corruption")
        if self.hides == "replacing" and model.stack.memory > 0:
            needed = f"what {name} lets a model read has holes, and is read from both sides, of which memory has one"
            todo = "take corruption=Shift, or use 0"
            raise RecipeError(f"{where}.encoder.stack.memory", model.stack.memory, needed, todo)

    def read_lengths(self, plan: ExamplePlan, chosen: np.ndarray) -> np.ndarray:
        """Tokens of some examples as they are read once corrupted."""
        return plan.lengths_of(chosen)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a loss needs, declared once: whoever makes batches, runs the model or checks a recipe asks here."""

    # Columns, heads of other losses by name, labelled "rows", "teacher", and "texts" where that one reads the text of
    # each example, not its tokens.
    reads: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()  # of a pass: layers, scores, values (of its blocks), penalties, pooled
    words: Literal["table", "clusters"] | None = None  # how words of the way in are scored on the way out
    one_way: bool = False  # rows that a stack with two directions read one way, half as wide as the two


@dataclass(slots=True)
class Loss(Spec):
    """What is predicted. The sum over predictions is divided by their number in the whole step, over all ranks, or by
    what `divisor` makes of it.

    `needs` says what it reads beside the last hidden states: it may read the head of another loss by that one's name,
    and `teacher`, what another model made of the same batch; without a teacher it is then not computed. What it needs
    of a pass is needed of the student's and the teacher's alike.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    regularizer: ClassVar[bool] = False  # a price, minimised in training, and no part of the loss that is reported
    decides: ClassVar[bool] = False  # it answers beside a task: without it other answers would be given
    weight: NonNegative = 1.0

    @property
    def pools(self) -> bool:
        """Whether it reads the pooled vector."""
        return "pooled" in self.needs.hidden

    @property
    def scores_with_bias(self) -> bool:
        """Whether its head has a `bias`, one number a word, which is added to the word's score."""
        return False

    def check_model(self, where: str, model: Architecture, corruption: Corruption | None) -> None:
        """Raise `RecipeError` if the model has not what it needs."""
        self.check_words(where, model)
        one_way = reads_one_way(model, corruption)
        if self.needs.one_way and not one_way:
            needed = "it predicts from rows that are read one way by a stack with two"
            raise RecipeError(where, type(self).__name__, needed, "use NextToken")
        if one_way and not self.needs.one_way:
            needed = "rows are read one way each, and it is for one width"
            raise RecipeError(where, type(self).__name__, needed, "use NextWord")
        if self.needs.hidden & {"scores", "values"} and model.top.memory:
            needed = f"pairs within a row are compared, and the stack also attends to {model.top.memory} rows of memory"
            raise RecipeError(where, type(self).__name__, needed, "use stack.memory=0, or HiddenStates")

    def check_words(self, where: str, model: Architecture) -> None:
        """Raise `RecipeError` if words are read in another way than it scores them."""
        name, (side, embed) = type(self).__name__, model.scoring
        words = embed.words
        if self.needs.words == "table" and words is not None:
            needed = f"it scores words against one table, and {side}.embed.words {words.manner}"
            raise RecipeError(where, name, needed, f"use {words.scored_by}, or {side}.embed.words=None")
        if self.needs.words == "clusters" and (words is None or words.scored != "clusters"):
            needed = "it scores words by clusters, and there is one table"
            raise RecipeError(where, name, needed, f"use NextToken, or {side}.embed.words=Adaptive(cutoffs=[...])")

    def count(self, batch: Batch) -> int:
        """How many predictions the batch holds, known on the host before the forward pass: its labels where it reads
        labels, otherwise its tokens without padding."""
        if "labels" not in self.needs.reads:
            return batch.real
        return 0 if batch.labels is None else len(batch.labels)

    def computed(self, batch: Batch) -> bool:
        """Whether the batch has all that it reads: a teacher's findings and a task's columns need not be there."""
        return "teacher" not in self.needs.reads or batch.teacher is not None

    def divisor(self, count: int) -> float:
        """What the sum over `count` predictions, those of a whole step or of held-out text, is divided by."""
        return count

    def read_positions(self, batch: Batch) -> Tensor | None:
        """Flat offsets of the tokens whose vectors it reads, each once; None: it may read any."""
        return None

    def blocks(self, depth: int, of: int) -> tuple[int, ...]:
        """The blocks whose scores or values it reads, in a model `of` so many, where the student has `depth`."""
        return ()

    def fitted(self, teacher: Outline) -> "Loss":
        """The same with what it must have to be compared with this teacher, where it leaves that open."""
        return self

    def narrowed(self, where: str) -> "tuple[Loss, str | None]":
        """The same for a table narrower than the model, where it scored words against one as wide; and the parameter
        of its head that maps to it, [E, D], None where there is none."""
        if self.needs.words is not None:
            needed = "its head is tied to a table as wide as the model"
            raise RecipeError(where, type(self).__name__, needed, "leave the table as it is")
        return self, None

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        """Raise `RecipeError` if it cannot compare these two."""

    @abstractmethod
    def build(self, width: int, embed: EmbedLayer) -> "LossLayer": ...


class LossLayer(nn.Module):
    """Base of the losses' modules: the head of a loss."""

    def connect(self, heads: Mapping[str, "LossLayer"]) -> None:
        """Get to know the heads of the losses it reads, once all are built; to refer to, not to own."""

    @abstractmethod
    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss, and summed metrics by name (divided by the count of predictions)."""


def reads_one_way(model: Architecture, corruption: Corruption | None) -> bool:
    """Whether a stack with two directions reads each row in one of them."""
    return model.top.directions == 2 and corruption is not None and corruption.kind == "causal"


@dataclass(slots=True)
class Objective(Spec):
    """Input format, masking, losses."""

    segments: Segments
    corruption: Corruption | None
    losses: tuple[Loss, ...]

    def check(self, where: str) -> None:
        """Raise `RecipeError` for a loss whose columns nobody writes, or that stands twice."""
        written = {"teacher", "texts", "rows"} | {loss.name for loss in self.losses}
        written |= self.segments.writes | (self.corruption.writes if self.corruption else frozenset())
        for index, loss in enumerate(self.losses):
            for column in sorted(loss.needs.reads - written):
                needed = f"it reads {column}, which nothing writes"
                todo = f"remove it, or take {_writers(column)}"
                raise RecipeError(f"{where}.losses.{index}", type(loss).__name__, needed, todo)
        if self.corruption is not None and len(self.segments.rooms) < self.corruption.sides:
            needed = f"it writes a target from a source, and examples of {type(self.segments).__name__} have one side"
            todo = "use segments=Pairs, or another corruption"
            raise RecipeError(f"{where}.corruption", type(self.corruption).__name__, needed, todo)
        names = [loss.name for loss in self.losses]
        if len(set(names)) < len(names):
            raise RecipeError(f"{where}.losses", ", ".join(names), "each loss may stand once", "remove the second")

    def at_rate(self, rate: float, where: str) -> Corruption:
        """Its corruption with another share of the tokens masked; refused where nothing is masked."""
        if self.corruption is None:
            raise RecipeError(where, rate, "nothing is masked", "use None")
        return self.corruption.at_rate(rate, where)

    def check_model(self, where: str, model: Architecture) -> None:
        """Raise `RecipeError` if one of its parts does not go with the model; `where` is the recipe."""
        two = self.corruption is not None and self.corruption.hides == "two streams"
        if self.corruption is not None:
            self.corruption.check_model(where, model)
            self.segments.check_model(where, model, self.corruption)
        if model.top.streams == 2 and not two:
            needed = "its second stream predicts tokens in an order, and nothing gives them one"
            todo = "use corruption=Permute() or a stack with one stream"
            raise RecipeError(f"{where}.encoder.stack", type(model.top).__name__, needed, todo)
        for index, loss in enumerate(self.losses):
            loss.check_model(f"{where}.objective.losses.{index}", model, self.corruption)


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
