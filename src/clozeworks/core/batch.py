"""The contract between data, stacks and losses: what goes in as a batch, what comes out as hidden vectors.

Shapes: B rows, L tokens of a row, D width, N examples, T predicted tokens.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.context import Context, Memory, StreamState, Visibility
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.records import RecordField, replace_fields
from clozeworks.core.token_info import PADDING, DocumentLayout, Kind, TokenInfo

HOST = ("stream", "continues")  # facts of examples that nobody asks the device for


@dataclass(slots=True)
class Hidden:
    """What a stack gives."""

    last: Tensor  # [B, L, D]; NaN where nobody was going to read
    layers: tuple[Tensor, ...] = ()  # input of the first block, then the output of each, when asked for
    memory: Memory | None = None
    query_stream: Tensor | None = None  # [T, D]: with two streams, the vectors that do not know their own tokens
    pooled: Tensor | None = None  # [N, D], one an example, where the encoder has a pooler
    captured: dict[str, Tensor] = field(default_factory=dict)  # of attention, when asked for
    shared: dict[str, Tensor] = field(default_factory=dict)  # what one head computed and another reads
    penalties: dict[str, Tensor] = field(default_factory=dict)  # of parameters alone, when asked for: one a module
    key: DropoutKey | None = None  # of the pass, for heads that drop
    real: Tensor | None = None  # [B, L] bool: what is no padding; None: nobody said

    def at(self, batch: "Batch") -> Tensor:
        """[T, D]: the vectors from which the targets are predicted."""
        if batch.targets is None:
            raise ValueError("this batch predicts nothing: it has no targets")
        if self.query_stream is not None:
            return self.query_stream
        return self.last.flatten(0, 1).index_select(0, batch.targets)


@dataclass(frozen=True, slots=True)
class Spans:
    """Tokens of hidden spans that stand between two tokens of their piece, first those at place 0; S of them."""

    target: Tensor  # [S] which of the batch's targets it is
    left: Tensor  # [S] flat offset of the token before its span
    right: Tensor  # [S] and of the one after it
    place: Tensor  # [S] in its span, from 0
    edges: Tensor  # [W] flat offsets of all tokens beside these spans, each once
    counts: tuple[int, ...]  # tokens at place 0, 1, ..., as host integers

    def within(self, longest: int) -> int:
        """How many stand at the first `longest` places."""
        return sum(self.counts[:longest])

    def to(self, device: torch.device | str) -> "Spans":
        tensors = (self.target, self.left, self.right, self.place, self.edges)
        return Spans(*(value.to(device) for value in tensors), counts=self.counts)


@dataclass(frozen=True, slots=True)
class WordScores:
    """Scores of every word as a product that nobody has made yet: logits = asked table^T + bias."""

    asked: Tensor  # [T, E]
    table: Tensor  # [V, E]
    bias: Tensor  # [V]


@dataclass(frozen=True, slots=True)
class TeacherOutput:
    """What a teacher computed for a batch, for the losses that compare."""

    hidden: Hidden  # empty where no loss compares tokens
    words: Callable[[Tensor], WordScores] | None = None  # from vectors [T, D] of its own, where it has such a head
    vectors: Tensor | None = None  # [N, D]: what it makes of the text of each example, whatever its tokens are
    logits: Tensor | None = None  # [N, outputs]: how it decides each example, where both have the same task


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is to be predicted of a batch."""

    targets: Tensor | None = None  # [T] flat offsets
    labels: Tensor | None = None  # [T]
    spans: Spans | None = None
    example: dict[str, Tensor] = field(default_factory=dict)  # [N]: pair_label, ...
    teacher: TeacherOutput | None = None  # made where the batch is used: neither moved nor sent


@dataclass(frozen=True, slots=True)
class RowStream:
    """How rows continue those of the batch before."""

    backward: Tensor | None = None  # [B] bool: rows that hold their text from its end to its beginning
    keep: int | None = None  # the next rows continue after so many tokens of these; None: after all
    past: Memory | None = None  # what was read before these rows; made where the batch is used


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a batch comes from."""

    row: int | None = None  # number of the first row within its step; None: it follows the batch before it
    index: tuple[int, ...] = ()  # which examples these are, to name them when something goes wrong


@dataclass(slots=True)
class Batch:
    """One micro-batch: rows of tokens, packed or padded, with what is to be predicted.

    The fields of its records are read and set as its own: `batch.targets`.
    """

    tokens: Tensor  # [B, L]
    token_info: TokenInfo
    kind: Kind
    layout: DocumentLayout
    firsts: Tensor  # [N] flat offset of the first token of each example
    lasts: Tensor | None = None  # [N] and of the last one, where it is known
    real: int = 0  # tokens that are not padding
    most_marked: int = 0  # tokens that a task marks, in the row that has most of them
    source: "Batch | None" = None  # what these rows are written from: their documents have the same numbers
    prediction: Prediction = field(default_factory=Prediction)
    stream: RowStream = RowStream()
    origin: Origin = Origin()

    targets = RecordField[Tensor | None]("prediction")
    labels = RecordField[Tensor | None]("prediction")
    spans = RecordField[Spans | None]("prediction")
    example = RecordField[dict[str, Tensor]]("prediction")
    teacher = RecordField[TeacherOutput | None]("prediction")
    backward = RecordField[Tensor | None]("stream")
    keep = RecordField[int | None]("stream")
    past = RecordField[Memory | None]("stream")
    row = RecordField[int | None]("origin")
    index = RecordField[tuple[int, ...]]("origin")

    def replace(self, **changes: Any) -> "Batch":
        """The same batch with other values of these fields, wherever they stand."""
        return replace_fields(self, changes)

    @property
    def read(self) -> int:
        """Tokens that are not padding, those of the source among them."""
        return self.real + (0 if self.source is None else self.source.real)

    def context(self, **more: Any) -> Context:
        """What a stack may know of these rows; `more` are fields of the context."""
        side = self.token_info
        context = Context(
            Visibility(side, side, self.kind, backward=self.backward, layout=self.layout),
            stream=StreamState(self.past, keep=self.keep),
            most_marked=self.most_marked,
            targets=self.targets if self.kind == "order" else None,  # a second stream asks in an order alone
        )
        return context.replace(**more) if more else context

    def solid(self, x: Tensor) -> Tensor:
        """[B, L, ...] or [B * L, ...] -> [T, ...]: the tokens that are not padding, without asking the device."""
        flat = x.flatten(0, 1) if x.shape[:2] == self.tokens.shape else x
        if self.real == self.tokens.numel():
            return flat
        real = torch.nonzero_static((self.token_info.document != PADDING).flatten(), size=self.real)[:, 0]
        return flat.index_select(0, real)

    def to(self, device: torch.device | str) -> "Batch":
        move = lambda value: None if value is None else value.to(device)  # noqa: E731
        return self.replace(
            tokens=self.tokens.to(device),
            token_info=self.token_info.each(lambda v: v.to(device)),
            firsts=self.firsts.to(device),
            lasts=move(self.lasts),
            targets=move(self.targets),
            labels=move(self.labels),
            spans=move(self.spans),
            backward=move(self.backward),
            source=move(self.source),
            example={name: value if name in HOST else value.to(device) for name, value in self.example.items()},
        )


def from_padded(
    tokens: Tensor,
    real: Tensor | None = None,
    segment: Tensor | None = None,
    kind: Kind = "full",
    marked: Tensor | None = None,
) -> Batch:
    """A batch from rows [B, L] padded on the right; `real` is the usual attention mask, `marked` the global one."""
    rows, width = tokens.shape
    real = torch.ones_like(tokens) if real is None else real
    document = torch.where(real.bool(), 0, PADDING)
    position = torch.arange(width, device=tokens.device).expand(rows, width)
    side = dataclasses.replace(TokenInfo.make(position, document, kind, segment), marked=marked)
    most = 0 if marked is None else int(marked.sum(1).max())
    starts: list[int] = []
    lengths: list[int] = []
    for row, length in enumerate(real.sum(1).tolist()):
        for start, count in ((0, length), (length, width - length)):
            if count:
                starts.append(row * width + start)
                lengths.append(count)
    borders = DocumentLayout(tuple(starts), tuple(lengths), rows, width)
    firsts = torch.arange(rows, device=tokens.device) * width
    return Batch(tokens, side, kind, borders, firsts, real=int(real.sum()), most_marked=most)
