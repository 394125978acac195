"""What every task says of itself; its name stands in `names`, which the command line reads without importing torch."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import Kind
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.metrics.classes import Confusion, OfClass
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.pooling import Pooling
from clozeworks.objectives.objective import Corruption, Loss, LossLayer, Needs
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.generation import Generation
from clozeworks.tasks.heads.task_encoder import TaskEncoder
from clozeworks.tasks.layer_selection import Reading
from clozeworks.tasks.names import suggest_task
from clozeworks.tasks.summary import Summary, choose_summary, summarize_all
from clozeworks.tasks.template import InputTemplate

Answers = Sequence[dict[str, Any]]
Problem = Literal["single_label", "multi_label", "regression"]  # as Hugging Face calls what a text is given


@dataclass(frozen=True, slots=True)
class PretrainedHead:
    """What the config of a model that was fine-tuned elsewhere says of its head."""

    template: InputTemplate
    labels: tuple[str, ...]
    problem: Problem
    dropout: float
    summary: Summary | None
    bias: bool
    causal: bool  # the encoder reads one way


@dataclass(frozen=True, slots=True)
class HeadParts:
    """What the head of a task is made of, for formats that have one class a head."""

    summary: Summary | None = None
    bias: bool = True
    dropout: float = 0.0  # of what it reads, where it has no summary
    own: Mapping[str, object] = field(default_factory=dict)  # by field, what no published head has; empty where absent


@dataclass(slots=True)
class Task(Loss):
    """What a labelled row is, what is predicted of it, and how good that was.

    A loss whose examples come from rows instead of text: a model has it as a head, a recipe among its losses, and so it
    is trained, saved and exported like any other. Labels and layout are fields of it, and stay with the model.

    With a `task_encoder`, recurrent layers of the task's own come between what it reads of the encoder and its head;
    over a frozen one, that is the feature-based use of Peters et al. (2017, 2018).
    """

    columns: ClassVar[tuple[str, ...]]  # that a row must have to be answered
    maybe: ClassVar[tuple[str, ...]] = ()  # that it may have to be learned from
    answer_columns: ClassVar[tuple[str, ...]] = ("label",)  # that it must have to be learned from
    main_metric: ClassVar[str]  # of those that `score` gives, the one that models are chosen by
    target_field: ClassVar[str]  # the column of a batch that holds what is to be predicted
    identifier: ClassVar[tuple[str, ...]] = ()  # that goes from a row into its answer, where it is there
    scores: ClassVar[Literal["table", "clusters"] | None] = None  # `Needs.words`
    generates: ClassVar[bool] = False  # an answer is a text that is decoded token by token
    has_head: ClassVar[bool] = True  # it has weights of its own; without, what is exported is the encoder
    pipeline_tag: ClassVar[str | None] = None  # as model hubs call it
    template: InputTemplate = field(default_factory=InputTemplate)
    reading: Reading = field(default_factory=Reading)
    labels: tuple[str, ...] = ()
    task_encoder: TaskEncoder | None = None

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        """The task around an encoder, its labels still to come."""
        return cls(template=encoder.template)

    @classmethod
    def truth_columns(cls) -> tuple[str, ...]:
        """The columns that rows to learn from must have beside the task's own; a|b: one of them."""
        return cls().truth

    @classmethod
    def refuse_options(cls, options: Mapping[str, Any]) -> None:
        """Raise `InputError` for an option of fine-tuning that is about something else."""
        for name, usual in (("architecture", "decoder"), ("decoder", None)):
            if not cls.generates and options[name] != usual:
                needed = f"it is about texts that are written, and this is {cls.name}"
                raise InputError(f"--{name}", options[name], needed, "leave it out")
        for name, usual in (("freeze", False), ("gradual_unfreezing", False), ("features", "last")):
            if not cls.has_head and options[name] != usual:
                needed = "it is about a head, and here the encoder is all there is"
                raise InputError(f"--{name.replace('_', '-')}", cls.name, needed, "leave it out")

    @classmethod
    def claims(cls, head: PretrainedHead) -> bool:
        """Whether a head that more than one task has is this one's."""
        return True

    @classmethod
    def from_head(cls, head: PretrainedHead) -> Self:
        """The task of a model that was fine-tuned elsewhere."""
        return cls(template=head.template, labels=head.labels)

    def head_parts(self) -> HeadParts:
        """What its head is made of."""
        return HeadParts(own={"task_encoder": self.task_encoder})

    def with_summary(self, summary: Summary) -> Self:
        """A copy with another summary, where it has one."""
        return self

    def without_bias(self) -> Self:
        """A copy whose head adds nothing, where it may."""
        return self

    def head_config(self) -> dict[str, Any]:
        """What a config of Hugging Face says of its outputs beside their names."""
        return {}

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.labels

    @property
    def encodes(self) -> Pooling | None:
        """How `encode` makes vectors of a model that was trained for it; None: as before."""
        return None

    @property
    def word_cut(self) -> Literal["spaces", "words", "characters"] | None:
        """How a whole text becomes words where it reads words; None: it reads texts."""
        return None

    @property
    def generation(self) -> Generation | None:
        """How its answers are decoded token by token; None: a head gives them at once."""
        return None

    def fit_head(self) -> Self:
        """A copy whose head fits what the task reads, after the fields of that were set."""
        return self

    def for_rows(self, table: Table) -> Self:
        """A copy for the columns that the rows to learn from have."""
        return self

    def measured(self, table: Table) -> Self:
        """A copy that is chosen by the metrics that these rows, to measure on, give."""
        return self

    def describe(self) -> list[str]:
        """What is to be said of it before a run, beside what it reads and its labels."""
        return []

    def describe_rows(self, table: Table) -> list[str]:
        """What is to be said of the rows to learn from, beside how many there are."""
        return []

    @property
    def metric(self) -> str:
        """What models are chosen by, of the metrics that `score` gives; the higher the better."""
        return self.main_metric

    @property
    def truth(self) -> tuple[str, ...]:
        """The columns that a row must have beside these to be learned from."""
        return self.answer_columns

    def computed(self, batch: Batch) -> bool:
        return self.target_field in batch.example

    def count(self, batch: Batch) -> int:
        return len(batch.example[self.target_field]) if self.computed(batch) else 0

    @property
    def needs(self) -> Needs:  # pyright: ignore[reportIncompatibleVariableOverride]
        layers, pooled = ["layers"] * self.everywhere, ["pooled"] * self.pools
        return Needs(reads=frozenset({"rows"}), hidden=frozenset(layers + pooled), words=self.scores)

    @property
    def pools(self) -> bool:
        return False

    def check_model(self, where: str, model: Architecture, corruption: Corruption | None) -> None:
        """Raise `RecipeError` if what it predicts of rows is not what the model gives."""
        self.check_words(where, model)
        name = type(self).__name__
        if (self.sides == 2) != (model.decoder is not None):
            missing = model.decoder is None
            needed = "a decoder writes from a source" if missing else "the decoder would have no source"
            raise RecipeError(where, name, needed, "give the recipe a decoder" if missing else "use None")
        blocks = list(model.top.layers(model.width))
        widths = sorted({wide for _, wide in blocks} | {block.out_width(wide) for block, wide in blocks})
        if self.reading.layers and len(widths) > 1:
            needed = f"layers of widths {', '.join(map(str, widths))} have no sum"
            raise RecipeError(f"{where}.reading", type(self.reading).__name__, needed, "read the last one: Reading()")
        first, last = model.width, blocks[-1][0].out_width(blocks[-1][1]) if blocks else model.width
        if self.task_encoder is not None and first != last:
            needed = f"words and what is said of them have one width, not {first} and {last}"
            given, todo = type(self.task_encoder).__name__, "use None, or another encoder"
            raise RecipeError(f"{where}.task_encoder", given, needed, todo)
        if self.everywhere and self.pools:
            raise RecipeError(f"{where}.summary.dense", "pooler", "the pooler reads the last layer alone", "use own")
        for mixer in model.top.mixers():
            if self.kind is not None and self.kind not in model.top.sees(mixer):
                needed = f"{type(mixer).__name__} cannot hide what {self.kind} visibility hides"
                raise RecipeError(where, name, needed, "take another encoder")

    def check_training(
        self, where: str, *, micro_tokens: int | None, batch_size: int | None, pooling: Pooling | None
    ) -> None:
        """Raise `RecipeError` if the recipe, at path `where`, trains or encodes in another way than it needs."""
        if self.encodes is not None and self.encodes != pooling:
            needed = "encode makes vectors as the task learns them"
            raise RecipeError(f"{where}.pooling", pooling, needed, "change task.pooling instead")
        if self.needs_whole_step:
            needed = f"{type(self).__name__} compares the rows of a step with one another"
            if micro_tokens is not None:
                raise RecipeError(f"{where}.train.micro_tokens", micro_tokens, needed, "use None")
            if batch_size is not None and batch_size < 2:
                raise RecipeError(f"{where}.finetune.batch_size", batch_size, needed, "use 2 or more, such as 32")

    @property
    def everywhere(self) -> bool:
        """Whether it reads more than the last layer where it predicts."""
        return self.reading.layers or self.task_encoder is not None

    def only_the_last(self, where: str, needed: str) -> None:
        """Refuse whatever reads more than that."""
        if self.reading.layers:
            raise RecipeError(f"{where}.reading", type(self.reading).__name__, needed, "use Reading()")
        if self.task_encoder is not None:
            raise RecipeError(f"{where}.task_encoder", type(self.task_encoder).__name__, needed, "use None")

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

    def single_labels(self, table: Table) -> list[str] | None:
        """The label of each row; None: rows have several, or something else than a label."""
        return None

    @abstractmethod
    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        """The rows as examples, with their labels unless there is no `truth`; a row that cannot be one is refused."""

    @abstractmethod
    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """The `outputs` of the head for each example, as one answer for each row of the table."""

    @abstractmethod
    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """Figures by their usual names."""

    def class_report(self, answers: Answers, table: Table) -> tuple[dict[str, OfClass], Confusion | None]:
        """Precision and recall by class or type of entity, and what was predicted for what; nothing without classes."""
        return {}, None

    def badness(self, answers: Answers, table: Table) -> np.ndarray:
        """float [rows]: how wrong each answer is; 0 for a right one."""
        return np.array([self.row_badness(*pair) for pair in zip(answers, table.rows, strict=True)])

    @abstractmethod
    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """Of one answer by itself."""

    def describe_truth(self, row: Row) -> Any:
        """The right answer to a row, for a reader: a text or a list."""
        return row[self.truth[0]]

    @abstractmethod
    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        """What was answered, for a reader."""

    def mean_loss(self, outputs: Sequence[np.ndarray], labelled: Labelled) -> float | None:
        """The mean loss of a task that `needs_whole_step`: batches of an evaluation do not hold the rows of a step."""
        return None

    def calibrate(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> "Task":
        """A copy with what only rows that were not trained on can tell, such as a threshold."""
        return self

    def calibrated_fields(self) -> dict[str, float]:
        """The fields that `calibrate` set, as they are."""
        return {}

    def marks(self, tokens: Tensor, tokenizer: Tokenizer | None) -> Tensor | None:
        """[B, L]: 1 at the tokens of padded rows that `template.marks` marks; None: none is, or nobody can say."""
        return torch.zeros_like(tokens).index_fill_(1, torch.tensor([0], device=tokens.device), 1)

    def number(self, label: object, table: Table, row: int) -> int:
        """Which of the labels this one is."""
        try:
            return self.labels.index(str(label))
        except ValueError:
            given, needed = f"label {label!r}", f"the model knows {', '.join(self.labels[:20])}"
            todo = "mend the row, or train with rows that have it"
            raise InputError(table.where(row), given, needed, todo) from None


@dataclass(slots=True)
class SummaryTask(Task):
    """A task that decides on a whole example, from one vector: its `summary`."""

    summary: Summary = field(default_factory=Summary)

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        summary = choose_summary(encoder.recipe, encoder.template, encoder.pooled)
        return cls(template=encoder.template, summary=summary)

    def head_parts(self) -> HeadParts:
        return HeadParts(self.summary, own={"task_encoder": self.task_encoder})

    def with_summary(self, summary: Summary) -> Self:
        return dataclasses.replace(self, summary=summary)

    def fit_head(self) -> Self:
        """With a layer of its own where it reads more than the last layer, which is all that a pooler has seen."""
        if self.task_encoder is not None:
            return self.with_summary(summarize_all())
        if self.everywhere and self.pools:
            return self.with_summary(Summary(self.template.summary, "own"))
        return self

    @property
    def pools(self) -> bool:
        return self.summary.dense == "pooler"

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if self.everywhere else self.summary.read_positions(batch)


def read_scores(table: Table, needed: str = "a number is needed") -> np.ndarray:
    """float64 [rows]: the column score; a row without a number is refused."""
    scores = []
    for at, row in enumerate(table.rows):
        try:
            value = float(row["score"])
        except (KeyError, TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            given = f"score {row['score']!r}" if "score" in row else "no score"
            raise InputError(table.where(at), given, needed, "mend the row")
        scores.append(value)
    return np.array(scores, np.float64)


def list_tasks() -> dict[str, type[Task]]:
    """Every task by its name: the library's, and those that the caller has defined."""
    spec.known_parts()  # imports the library's
    kinds: dict[str, type[Task]] = {}
    pending = list(Task.__subclasses__())
    while pending:
        kind = pending.pop()
        pending.extend(kind.__subclasses__())
        if "__slots__" in vars(kind) and hasattr(kind, "name"):  # slots=True makes a second class, and this is it
            kinds[kind.name] = kind
    return dict(sorted(kinds.items()))


def find_task(name: str) -> type[Task]:
    kinds = list_tasks()
    if name not in kinds:
        raise InputError("task", name, f"one of {', '.join(kinds)} is needed", suggest_task(name, kinds))
    return kinds[name]


class TaskLayer(LossLayer):
    """The module of a task: its loss, and of each example what answers are made of."""

    @abstractmethod
    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        """Of each example of the batch what answers are made of."""

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        """The scores of all examples, or of all tokens, by the names people know."""
        return {}


class HeadLayer(TaskLayer):
    """A head over vectors of tokens, as `reading` and `task_encoder` make them of the encoder's layers."""

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


class SummaryHeadLayer(HeadLayer):
    """A head over one vector of each example."""

    def __init__(self, spec: SummaryTask, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.summary = spec.summary.build(self.width)

    def summed(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N, D]: what each example is decided by."""
        return self.summary(self.read(hidden, batch), hidden, batch)
