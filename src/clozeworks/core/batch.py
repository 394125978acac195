"""The contract between data, mixers and losses.

Who may see whom is data: each token carries two integers, and

    i sees j  <=>  j.document == i.document  and  j.appears <= i.sees

Full attention is 0, 0; causal is the position twice; a prefix has 0 for the source; a permutation has the rank
(its query stream sees rank - 1). Padding is one more document, so a padded row is a packed row.

Shapes: B rows, L query tokens, M memory tokens, D width, N examples, T predicted tokens.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from clozeworks.core.cache import Cache
from clozeworks.core.dropout import DropoutKey

Kind = Literal["full", "causal", "prefix", "order"]
Backend = Literal["auto", "dense", "sdpa", "documents"]
PADDING, FORGOTTEN = -1, -2
HOST = ("stream", "continues")  # facts of examples that nobody asks the device for


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """Facts of the tokens on one side of an attention, each [B, n]."""

    position: Tensor  # restarts in every document
    document: Tensor  # -1 padding, -2 forgotten memory
    appears: Tensor
    sees: Tensor
    segment: Tensor | None = None
    marked: Tensor | None = None  # bool: tokens that see and are seen from afar, whatever a mixer leaves out

    @staticmethod
    def make(position: Tensor, document: Tensor, kind: Kind, segment: Tensor | None = None) -> "TokenInfo":
        """Numbers and promise made together: the only way to get a `full` or `causal` side."""
        if kind == "causal":
            return TokenInfo(position, document, position, position, segment)
        if kind == "full":
            nought = torch.zeros_like(position)
            return TokenInfo(position, document, nought, nought, segment)
        raise ValueError(f"kind {kind!r} has numbers of its own: build the Side from them")

    def each(self, change: Callable[[Tensor], Tensor]) -> "TokenInfo":
        changed: Any = (None if value is None else change(value) for value in self._tensors())
        return TokenInfo(*changed)

    def take(self, index: Tensor) -> "TokenInfo":
        """The tokens at index [B, n]."""
        return self.each(lambda value: value.gather(1, index))

    def cat(self, other: "TokenInfo") -> "TokenInfo":
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        joined: Any = (None if a is None or b is None else torch.cat([a, b], 1) for a, b in pairs)
        return TokenInfo(*joined)

    def tail(self, count: int) -> "TokenInfo":
        return self.each(lambda value: value[:, value.shape[1] - count :] if count else value[:, :0])

    def earlier(self, by: int, backward: Tensor | None = None) -> "TokenInfo":
        """The same tokens as those see them that stand `by` places on: before all of them, in sight of all, and of the
        first segment.

        `backward` [B] bool: the rows whose positions run down.
        """
        shift = by if backward is None else torch.where(backward, -by, by)[:, None]
        before = torch.arange(-self.position.shape[1], 0, device=self.position.device).expand_as(self.position)
        segment = None if self.segment is None else torch.zeros_like(self.segment)
        return TokenInfo(self.position - shift, self.document, before, before, segment, self.marked)

    def forget(self, rows: Tensor) -> "TokenInfo":
        """Rows [B] bool whose tokens nobody sees any more."""
        return dataclasses.replace(self, document=self.document.masked_fill(rows[:, None], FORGOTTEN))

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.position, self.document, self.appears, self.sees, self.segment, self.marked


def visible(query: TokenInfo, memory: TokenInfo) -> Tensor:
    """[B, L, M] bool: the one predicate of visibility."""
    same = query.document[..., :, None] == memory.document[..., None, :]
    return same & (memory.appears[..., None, :] <= query.sees[..., :, None])


@dataclass(frozen=True)
class DocumentLayout:
    """Where the documents of a batch lie, as host integers, so that a fast path never has to ask the device.

    Padding counts as a document. `starts` are offsets into the flattened [B * L] tokens.
    """

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    rows: int
    width: int

    @cached_property
    def plain(self) -> bool:
        """Every row is one whole document."""
        return len(self.starts) == self.rows

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def by_length(self) -> tuple[Tensor, tuple[tuple[int, int], ...]]:
        """Flat token order with documents of equal length together, and [(count, length)] of those groups."""
        starts, lengths = torch.tensor(self.starts), torch.tensor(self.lengths)
        groups, index = [], []
        for length in lengths.unique().tolist():
            chosen = starts[lengths == length]
            groups.append((len(chosen), length))
            index.append((chosen[:, None] + torch.arange(length)).flatten())
        return torch.cat(index), tuple(groups)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a stack remembers, one entry a layer: hidden rows [B, M, D] (re-projected each call) or a Carry."""

    layers: tuple[Tensor | Cache, ...]
    token_info: TokenInfo
    cross: tuple[Cache | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The other side of cross-attention."""

    hidden: Tensor
    token_info: TokenInfo
    layout: DocumentLayout | None = None  # of the documents, where they are known


@dataclass(slots=True)
class AttentionCapture:
    """What is kept of attention for whoever asks, by kind and block: `kept["scores.3"]`. Forces the dense path.

    weights [B, H, L, M]; scores [B, H, L, M], which they are the softmax of, those of hidden pairs too; values
    [B, H, M, d].
    """

    wants: frozenset[str] = frozenset({"weights"})
    blocks: frozenset[int] | None = None  # of the stack; None: every one
    captured: dict[str, Tensor] = field(default_factory=dict)
    block: int = 0

    def at(self, block: int) -> "AttentionCapture | None":
        """The view of one block; None where nothing is asked of it."""
        return dataclasses.replace(self, block=block) if self.blocks is None or block in self.blocks else None

    def keep(self, kind: str, tensor: Tensor) -> None:
        if kind in self.wants:
            self.captured[f"{kind}.{self.block}"] = tensor


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a mixer may know about its tokens besides their vectors."""

    query: TokenInfo
    memory: TokenInfo
    kind: Kind = "full"  # a promise about appears and sees
    offset: int | None = 0  # promise: query i is memory i + offset, index distance is position distance; None: neither
    backward: Tensor | None = None  # [B] bool: rows read from their end, where that distance has the other sign
    layout: DocumentLayout | None = None  # only while memory rows are query rows
    source: Source | None = None
    past: Memory | None = None
    keep: int | None = None  # of these rows the first so many are remembered; None: all
    most_marked: int = 0  # tokens marked in the row that has most of them
    carry: bool = False  # hand back what the next call needs
    key: DropoutKey | None = None  # None: no randomness
    positions: Tensor | None = None  # [W] flat offsets: the last block need give no more than the vectors of these
    targets: Tensor | None = None  # [T] flat offsets of what is predicted: where a second stream asks
    scratch: dict[str, Any] = field(default_factory=dict)  # shared by all layers of one pass
    frozen: dict[Any, Any] | None = None  # shared by all passes, for as long as no weight changes; None: weights may
    replay: dict[Any, Any] | None = None  # choices of a pass that is computed twice, by who made them; None: it is not
    capture: AttentionCapture | None = None
    backend: Backend = "auto"

    def at(self, *site: int | str) -> "Context":
        return self if self.key is None else dataclasses.replace(self, key=self.key.at(*site))

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Computed by the first layer, reused by the others."""
        if name not in self.scratch:
            self.scratch[name] = compute()
        return self.scratch[name]

    def lasting(self, owner: object, key: object, compute: Callable[[], Any]) -> Any:
        """Computed from weights and `key` alone: found again while both stay, the last one for each owner."""
        if self.frozen is None:
            return compute()
        if owner not in self.frozen or self.frozen[owner][0] != key:
            self.frozen[owner] = key, compute()
        return self.frozen[owner][1]

    def decide(self, owner: object, compute: Callable[[], Any]) -> Any:
        """A discrete choice, found again where a pass is computed a second time: rounding must not change it."""
        if self.replay is None:
            return compute()
        if owner not in self.replay:
            self.replay[owner] = compute()
        return self.replay[owner]

    def mask(self) -> Tensor:
        """[B, 1, L, M] bool, once a pass."""
        return self.once("mask", lambda: visible(self.query, self.memory)[:, None])

    def pick(self, x: Tensor) -> Tensor:
        """[B, L, D] -> [W, D] where only some places are asked for; what has been picked stays as it is."""
        return x if self.positions is None or x.ndim == 2 else x.flatten(0, 1).index_select(0, self.positions)

    def picked(self) -> "Context":
        """The view of what follows the picking: each token drops what it would among all."""
        if self.positions is None or self.key is None:
            return self
        return dataclasses.replace(self, key=self.key.tokens(self.positions, self.query.position.numel()))

    def after(self, past: TokenInfo) -> "Context":
        """The same queries with older rows before them in memory."""
        offset = None if self.offset is None else self.offset + past.position.shape[1]
        return dataclasses.replace(self, memory=past.cat(self.memory), offset=offset, layout=None, scratch={})

    def recent(self, count: int) -> "Context":
        """The same queries with no more than `count` older rows before them in memory."""
        if self.offset is None or self.offset <= count:
            return self
        memory = self.memory.each(lambda value: value[:, (self.offset or 0) - count :])
        scratch = self.scratch.setdefault(f"recent.{count}", {})
        return dataclasses.replace(self, memory=memory, offset=count, scratch=scratch)

    def across(self) -> "Context":
        """The view of cross-attention: every query sees the whole source of its document."""
        if self.source is None:
            raise ValueError("cross-attention needs context.source")
        side = self.source.token_info
        nought, sees = torch.zeros_like(side.position), torch.zeros_like(self.query.position)
        return dataclasses.replace(
            self,
            query=dataclasses.replace(self.query, appears=sees, sees=sees),
            memory=dataclasses.replace(side, appears=nought, sees=nought),
            kind="full",
            offset=None,
            layout=None,
            scratch=self.scratch.setdefault("across", {}),
        )

    def narrow(self, **numbers: Tensor) -> "Context":
        """Other visibility for the queries: the promise is withdrawn with the numbers it was about."""
        query = dataclasses.replace(self.query, **numbers)
        return dataclasses.replace(self, query=query, kind="order", layout=None, scratch={})


def verify_promises(context: Context) -> None:
    """Hold a context to its promises (for tests): kind and offset must agree with the dense mask."""
    query, memory = context.query, context.memory
    same = query.document[:, :, None] == memory.document[:, None, :]
    seen = visible(query, memory)
    if context.kind == "full":
        assert torch.equal(seen, same), "kind is full, yet something of the same document is hidden"
    if context.kind == "causal":
        past = memory.position[:, None, :] <= query.position[:, :, None]
        assert torch.equal(seen, same & past), "kind is causal, yet the mask is not"
    if context.offset is not None:
        rows = torch.arange(query.position.shape[1]) + context.offset
        moved = memory.each(lambda value: value[:, rows])
        assert torch.equal(moved.document, query.document), "offset: query i is not memory i + offset"
        index = rows[:, None] - torch.arange(memory.position.shape[1])
        distance = query.position[:, :, None] - memory.position[:, None, :]
        if context.backward is not None:
            distance = torch.where(context.backward[:, None, None], -distance, distance)
        assert torch.equal(distance[same], index.expand_as(distance)[same]), "offset: distances are irregular"
    if context.layout is not None:
        flat = query.document.flatten().tolist()
        for start, length in zip(context.layout.starts, context.layout.lengths, strict=True):
            assert len(set(flat[start : start + length])) == 1, "borders: a document is cut"


@dataclass(slots=True)
class Hidden:
    """What a stack gives."""

    last: Tensor  # [B, L, D]; NaN where nobody was going to read
    layers: tuple[Tensor, ...] = ()  # input of the first block, then the output of each, when asked for
    memory: Memory | None = None
    query_stream: Tensor | None = (
        None  # [T, D]: of a stack with two streams, the vectors that do not know their own tokens
    )
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
        return (
            self.last.flatten(0, 1).index_select(0, batch.targets) if self.query_stream is None else self.query_stream
        )


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
    """What a teacher found in a batch, for the losses that compare."""

    hidden: Hidden
    words: Callable[[Tensor], WordScores] | None = None  # from vectors [T, D] of its own, where it has such a head


@dataclass(slots=True)
class Batch:
    """One micro-batch: rows of tokens, packed or padded, with what is to be predicted."""

    tokens: Tensor  # [B, L]
    token_info: TokenInfo
    kind: Kind
    layout: DocumentLayout
    firsts: Tensor  # [N] flat offset of the first token of each example
    lasts: Tensor | None = None  # [N] and of the last one, where it is known
    targets: Tensor | None = None  # [T] flat offsets
    labels: Tensor | None = None  # [T]
    spans: Spans | None = None
    example: dict[str, Tensor] = field(default_factory=dict)  # [N]: pair_label, ...
    real: int = 0  # tokens that are not padding
    row: int | None = None  # number of the first row within its step; None: it follows the batch before it
    index: tuple[int, ...] = ()  # which examples these are, to name them when something goes wrong
    backward: Tensor | None = None  # [B] bool: rows that hold their text from its end to its beginning
    keep: int | None = None  # the next rows go on after so many tokens of these; None: after all
    most_marked: int = 0  # tokens that a task marks, in the row that has most of them
    source: "Batch | None" = None  # what these rows are written from: their documents have the same numbers
    past: Memory | None = None  # what was read before these rows; like teacher made where the batch is used
    teacher: TeacherOutput | None = None  # made where the batch is used: neither moved nor sent

    @property
    def read(self) -> int:
        """Tokens that are not padding, those of the source among them."""
        return self.real + (0 if self.source is None else self.source.real)

    def context(self, **more: Any) -> Context:
        own = {"past": self.past, "keep": self.keep, "backward": self.backward}
        own["targets"] = self.targets if self.kind == "order" else None  # a second stream asks in an order alone
        own |= {"layout": self.layout, "most_marked": self.most_marked}
        return Context(self.token_info, self.token_info, self.kind, **own | more)

    def solid(self, x: Tensor) -> Tensor:
        """[B, L, ...] or [B * L, ...] -> [T, ...]: the tokens that are not padding, without asking the device."""
        flat = x.flatten(0, 1) if x.shape[:2] == self.tokens.shape else x
        if self.real == self.tokens.numel():
            return flat
        real = torch.nonzero_static((self.token_info.document != PADDING).flatten(), size=self.real)[:, 0]
        return flat.index_select(0, real)

    def to(self, device: torch.device | str) -> "Batch":
        move = lambda value: None if value is None else value.to(device)  # noqa: E731
        return dataclasses.replace(
            self,
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
