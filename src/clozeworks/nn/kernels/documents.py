"""Where the documents of packed rows lie, and all of them as one ragged table: for parts that treat each as one."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from clozeworks.core.context import Context
from clozeworks.core.token_info import DocumentLayout, TokenInfo


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents in columns, the longest first; a row of the table has one token of each that is so long.

    Padding counts as documents, too. In this order (time, then document) torch's recurrent kernels take sequences of
    different lengths: a step is a stretch of tokens, and what is already over costs nothing.
    """

    order: Tensor  # [n] flat offset of each token
    back: Tensor  # [n] where in this order each token of the rows is
    document: Tensor  # [n] which one it belongs to
    time: Tensor  # [n] its place there
    counts: Tensor  # [longest], on the host: documents that have a token at this time
    first: Tensor  # [N], on the host: flat offset of the first token of each
    lengths: Tensor  # [N], on the host
    shape: tuple[int, int]  # of the rows they are packed in

    @staticmethod
    def of(borders: DocumentLayout, device: torch.device) -> "Documents":
        first, lengths = torch.tensor(borders.starts), torch.tensor(borders.lengths)
        by_length = lengths.argsort(descending=True, stable=True)
        first, lengths = first[by_length], lengths[by_length]
        there = torch.arange(int(lengths[0]))[:, None] < lengths
        time, document = there.nonzero(as_tuple=True)
        order = first[document] + time
        back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
        order, back, document, time = (each.to(device) for each in (order, back, document, time))
        shape = borders.rows, borders.width
        return Documents(order, back, document, time, there.sum(1), first, lengths, shape)

    @staticmethod
    def rows(x: Tensor) -> "Documents":
        """Every row of x [B, L, D] is one."""
        rows, width = x.shape[:2]
        return Documents.of(
            DocumentLayout(tuple(range(0, rows * width, width)), (width,) * rows, rows, width), x.device
        )

    def __len__(self) -> int:
        return len(self.first)

    def pack(self, x: Tensor) -> Tensor:
        """[B, L, D] -> [n, D]."""
        return x.flatten(0, 1).index_select(0, self.order)

    def unpack(self, x: Tensor) -> Tensor:
        """[n, D] -> [B, L, D]."""
        return x.index_select(0, self.back).view(*self.shape, x.shape[-1])

    def grid(self, x: Tensor) -> Tensor:
        """[n, D] -> [N, longest, D], zeros behind the end of each."""
        whole = x.new_zeros(len(self) * len(self.counts), x.shape[-1])
        return whole.index_copy(0, self._cells(), x).view(len(self), len(self.counts), x.shape[-1])

    def ungrid(self, grid: Tensor) -> Tensor:
        """[N, longest, D] -> [n, D]."""
        return grid.flatten(0, 1).index_select(0, self._cells())

    def _cells(self) -> Tensor:
        return self.document * len(self.counts) + self.time

    def partners(self, side: TokenInfo, others: "Documents", other: TokenInfo) -> Tensor:
        """[N], on the host: for each of these, which of the others has its row and number; -1: none, it is padding."""
        if side.document.is_meta:  # shapes alone
            return torch.arange(len(self)) % len(others)
        known = {name: at for at, name in enumerate(others.names(other)) if name[1] >= 0}
        return torch.tensor([known.get(name, -1) for name in self.names(side)])

    def names(self, side: TokenInfo) -> list[tuple[int, int]]:
        """The row and the number of each."""
        numbers = side.document.flatten()[self.first.to(side.document.device)]
        return list(zip((self.first // self.shape[1]).tolist(), numbers.tolist(), strict=True))


def documents_of(context: Context) -> Documents:
    """The documents of the queries, computed once a pass."""
    return context.once("documents", lambda: Documents.of(borders_of(context), context.query.document.device))


def borders_of(context: Context) -> DocumentLayout:
    """Those of the context, or computed once a pass."""
    return context.layout or context.once("borders", lambda: find_documents(context.query))


def find_documents(side: TokenInfo) -> DocumentLayout:
    """The borders where the context has none: read off the tokens."""
    rows, width = side.document.shape
    begins = torch.ones_like(side.document, dtype=torch.bool)
    begins[:, 1:] = side.document[:, 1:] != side.document[:, :-1]
    starts = begins.flatten().nonzero()[:, 0].tolist()
    return DocumentLayout(tuple(starts), tuple(b - a for a, b in pairwise([*starts, rows * width])), rows, width)


def owners(borders: DocumentLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """[N] the flat offsets at which documents begin, rising, and [B * L] the number among these of each token's."""
    starts, lengths = torch.tensor(borders.starts), torch.tensor(borders.lengths)
    order = starts.argsort()
    owner = torch.arange(len(starts)).repeat_interleave(lengths[order])
    return starts[order].to(device), owner.to(device)
