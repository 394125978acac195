"""What a mixer may know about its tokens besides their vectors.

Shapes: B rows, L query tokens, M memory tokens, D width, T predicted tokens.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from clozeworks.core.cache import Cache
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.records import RecordField, replace_fields
from clozeworks.core.token_info import DocumentLayout, Kind, TokenInfo, visible

Backend = Literal["auto", "dense", "sdpa", "documents"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a stack remembers, one entry a layer: hidden rows [B, M, D] (re-projected each call) or a Cache."""

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
    """What is kept of attention for whoever asks, by kind and block: `captured["scores.3"]`. Forces the dense path.

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
class Visibility:
    """Who sees whom, and what is promised about it."""

    query: TokenInfo
    memory: TokenInfo
    kind: Kind = "full"  # a promise about appears and sees
    offset: int | None = 0  # promise: query i is memory i + offset, index distance is position distance; None: neither
    backward: Tensor | None = None  # [B] bool: rows read from their end, where that distance has the other sign
    layout: DocumentLayout | None = None  # only while memory rows are query rows


@dataclass(frozen=True, slots=True)
class PassState:
    """What the layers of one forward pass share."""

    key: DropoutKey | None = None  # None: no randomness
    scratch: dict[str, Any] = field(default_factory=dict)  # shared by all layers of one pass
    frozen: dict[Any, Any] | None = None  # shared by all passes, for as long as no weight changes; None: weights may
    replay: dict[Any, Any] | None = None  # choices of a pass that is computed twice, by who made them; None: it is not
    capture: AttentionCapture | None = None
    backend: Backend = "auto"


@dataclass(frozen=True, slots=True)
class StreamState:
    """How a call continues the one before it, and the next one this."""

    past: Memory | None = None
    carry: bool = False  # hand back what the next call needs
    keep: int | None = None  # of these rows the first so many are remembered; None: all


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a mixer may know about its tokens besides their vectors.

    Three records hold what changes together; their fields are read as the context's own (`context.key`), and
    `context.replace(key=...)` finds the record of each change.
    """

    visibility: Visibility
    state: PassState = field(default_factory=PassState)
    stream: StreamState = StreamState()
    source: Source | None = None
    most_marked: int = 0  # tokens marked in the row that has most of them
    positions: Tensor | None = None  # [W] flat offsets: the last block need give no more than the vectors of these
    targets: Tensor | None = None  # [T] flat offsets of what is predicted: where a second stream asks

    query = RecordField[TokenInfo]("visibility")
    memory = RecordField[TokenInfo]("visibility")
    kind = RecordField[Kind]("visibility")
    offset = RecordField[int | None]("visibility")
    backward = RecordField[Tensor | None]("visibility")
    layout = RecordField[DocumentLayout | None]("visibility")
    key = RecordField[DropoutKey | None]("state")
    scratch = RecordField[dict[str, Any]]("state")
    frozen = RecordField[dict[Any, Any] | None]("state")
    replay = RecordField[dict[Any, Any] | None]("state")
    capture = RecordField[AttentionCapture | None]("state")
    backend = RecordField[Backend]("state")
    past = RecordField[Memory | None]("stream")
    carry = RecordField[bool]("stream")
    keep = RecordField[int | None]("stream")

    @staticmethod
    def make(
        query: TokenInfo, memory: TokenInfo, kind: Kind = "full", offset: int | None = 0, **more: Any
    ) -> "Context":
        """A context from the two sides of an attention; `more` are fields of it or of its records."""
        context = Context(Visibility(query, memory, kind, offset))
        return context.replace(**more) if more else context

    def replace(self, **changes: Any) -> "Context":
        """The same context with other values of these fields, wherever they stand."""
        return replace_fields(self, changes)

    def at(self, *site: int | str) -> "Context":
        key = self.state.key
        if key is None:
            return self
        return dataclasses.replace(self, state=dataclasses.replace(self.state, key=key.at(*site)))

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Computed by the first layer, reused by the others."""
        if name not in self.scratch:
            self.scratch[name] = compute()
        return self.scratch[name]

    def lasting(self, owner: object, key: object, compute: Callable[[], Any]) -> Any:
        """Computed from weights and `key` alone: cached while both stay, the last one for each owner."""
        if self.frozen is None:
            return compute()
        if owner not in self.frozen or self.frozen[owner][0] != key:
            self.frozen[owner] = key, compute()
        return self.frozen[owner][1]

    def decide(self, owner: object, compute: Callable[[], Any]) -> Any:
        """A discrete choice, replayed where a pass is computed a second time: rounding must not change it."""
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
        return self.replace(key=self.key.tokens(self.positions, self.query.position.numel()))

    def after(self, past: TokenInfo) -> "Context":
        """The same queries with older rows before them in memory."""
        offset = None if self.offset is None else self.offset + past.position.shape[1]
        return self.replace(memory=past.cat(self.memory), offset=offset, layout=None, scratch={})

    def recent(self, count: int) -> "Context":
        """The same queries with no more than `count` older rows before them in memory."""
        if self.offset is None or self.offset <= count:
            return self
        memory = self.memory.each(lambda value: value[:, (self.offset or 0) - count :])
        scratch = self.scratch.setdefault(f"recent.{count}", {})
        return self.replace(memory=memory, offset=count, scratch=scratch)

    def across(self) -> "Context":
        """The view of cross-attention: every query sees the whole source of its document."""
        if self.source is None:
            raise ValueError("cross-attention needs context.source")
        side = self.source.token_info
        nought, sees = torch.zeros_like(side.position), torch.zeros_like(self.query.position)
        return self.replace(
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
        return self.replace(query=query, kind="order", layout=None, scratch={})
