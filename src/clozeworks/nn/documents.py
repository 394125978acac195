"""The documents of packed rows as one ragged table: for what must be done token by token along each of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.batch import Borders, Side


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents in columns, the longest first; a row of the table has one token of each that is so long.

    In this order (time, then document) torch's recurrent kernels take sequences of different lengths.
    """

    order: Tensor  # [n] flat offset of each token
    document: Tensor  # [n] which one it belongs to
    time: Tensor  # [n] its place there
    counts: Tensor  # [longest], on the host: documents that have a token at this time
    first: Tensor  # [N], on the host: flat offset of the first token of each
    lengths: Tensor  # [N], on the host
    shape: tuple[int, int]  # of the rows they are packed in

    @staticmethod
    def of(side: Side, borders: Borders | None = None) -> "Documents":
        """Padding counts as documents, too; without borders the tokens are asked."""
        rows, width = side.document.shape
        if borders is not None:
            return Documents.make(torch.tensor(borders.starts), torch.tensor(borders.lengths), rows, width, side)
        begins = torch.ones_like(side.document, dtype=torch.bool)
        begins[:, 1:] = side.document[:, 1:] != side.document[:, :-1]
        first = begins.flatten().nonzero()[:, 0].cpu()
        lengths = torch.cat([first, first.new_tensor([rows * width])]).diff()
        return Documents.make(first, lengths, rows, width, side)

    @staticmethod
    def make(first: Tensor, lengths: Tensor, rows: int, width: int, side: Side) -> "Documents":
        by_length = lengths.argsort(descending=True, stable=True)
        return Documents.sorted(first[by_length], lengths[by_length], (rows, width), side.document.device)

    @staticmethod
    def rows(x: Tensor) -> "Documents":
        """Every row of x [B, L, D] is one."""
        rows, width = x.shape[:2]
        return Documents.sorted(torch.arange(rows) * width, torch.full((rows,), width), (rows, width), x.device)

    @staticmethod
    def sorted(first: Tensor, lengths: Tensor, shape: tuple[int, int], device: torch.device) -> "Documents":
        time = torch.arange(int(lengths[0]))[:, None]
        there = time < lengths
        document = torch.arange(len(first)).expand_as(there)[there]
        places = (first + time)[there], document, time.expand_as(there)[there]
        order, document, time = (each.to(device) for each in places)
        return Documents(order, document, time, there.sum(1), first, lengths, shape)

    def __len__(self) -> int:
        return len(self.first)

    def pack(self, x: Tensor) -> Tensor:
        """[B, L, D] -> [n, D]."""
        return x.flatten(0, 1).index_select(0, self.order)

    def unpack(self, x: Tensor) -> Tensor:
        """[n, D] -> [B, L, D]."""
        return torch.zeros_like(x).index_copy(0, self.order, x).view(*self.shape, x.shape[-1])

    def grid(self, x: Tensor) -> Tensor:
        """[n, D] -> [N, longest, D], zeros behind the end of each."""
        whole = x.new_zeros(len(self) * len(self.counts), x.shape[-1])
        return whole.index_copy(0, self._cells(), x).view(len(self), len(self.counts), x.shape[-1])

    def ungrid(self, grid: Tensor) -> Tensor:
        """[N, longest, D] -> [n, D]."""
        return grid.flatten(0, 1).index_select(0, self._cells())

    def _cells(self) -> Tensor:
        return self.document * len(self.counts) + self.time

    def partners(self, side: Side, others: "Documents", other: Side) -> Tensor:
        """[N], on the host: for each of these, which of the others has its row and number; -1: none, it is padding."""
        if side.document.is_meta:  # shapes alone
            return torch.arange(len(self)) % len(others)
        known = {name: at for at, name in enumerate(others.names(other)) if name[1] >= 0}
        return torch.tensor([known.get(name, -1) for name in self.names(side)])

    def names(self, side: Side) -> list[tuple[int, int]]:
        """The row and the number of each."""
        numbers = side.document.flatten()[self.first.to(side.document.device)]
        return list(zip((self.first // self.shape[1]).tolist(), numbers.tolist(), strict=True))
