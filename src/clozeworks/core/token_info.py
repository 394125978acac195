"""What attention knows of tokens besides their vectors: who may see whom, and where documents lie.

Who may see whom is data: each token carries two integers, and

    i sees j  <=>  j.document == i.document  and  j.appears <= i.sees

Full attention is 0, 0; causal is the position twice; a prefix has 0 for the source; a permutation has the rank
(its query stream sees rank - 1). Padding is one more document, so a padded row is a packed row.

Shapes: B rows, L query tokens, M memory tokens.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["full", "causal", "prefix", "order"]
PADDING, FORGOTTEN = -1, -2


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
        raise ValueError(f"kind {kind!r} has numbers of its own: build the TokenInfo from them")

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

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...] | None:
        """[(first token, documents, their length)] where those of one length already stand together; else None."""
        ends = [start + length for start, length in zip(self.starts, self.lengths, strict=True)]
        if self.starts[0] or self.starts[1:] != tuple(ends[:-1]):
            return None
        runs: list[tuple[int, int, int]] = []
        for start, length in zip(self.starts, self.lengths, strict=True):
            if runs and runs[-1][2] == length:
                runs[-1] = runs[-1][0], runs[-1][1] + 1, length
            else:
                runs.append((start, 1, length))
        return tuple(runs) if len({length for _, _, length in runs}) == len(runs) else None
