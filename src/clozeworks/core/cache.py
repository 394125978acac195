"""What a mixer carries from one call to the next, so that what has been read need not be read again."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


class Cache:
    """Base of what is carried: each kind of mixer has its own. A bare tensor is always hidden rows [B, M, D]."""

    __slots__ = ()

    @abstractmethod
    def rows(self, index: Tensor) -> Self:
        """These rows of the batch, in this order, some of them perhaps more than once."""

    @abstractmethod
    def tail(self, count: int, unread: int = 0) -> Self:
        """Of the last `count` tokens of those before the `unread` ones at the end."""


@dataclass(frozen=True, slots=True)
class KVCache(Cache):
    """Projected keys and values [B, H, M, d]: what attention carries."""

    k: Tensor
    v: Tensor

    def rows(self, index: Tensor) -> "KVCache":
        return KVCache(self.k[index], self.v[index])

    def tail(self, count: int, unread: int = 0) -> "KVCache":
        end = self.k.shape[2] - unread
        return KVCache(self.k[:, :, max(end - count, 0) : end], self.v[:, :, max(end - count, 0) : end])


@dataclass(frozen=True, slots=True)
class ConvCache(Cache):
    """The last projected rows [B, n, D]: what a convolution carries, which looks no further back than its kernel."""

    last: Tensor

    def rows(self, index: Tensor) -> "ConvCache":
        return ConvCache(self.last[index])

    def tail(self, count: int, unread: int = 0) -> "ConvCache":
        end = self.last.shape[1] - unread
        return ConvCache(self.last[:, max(end - count, 0) : end])


@dataclass(frozen=True, slots=True)
class BranchCaches(Cache):
    """What each branch of a split mixer carries."""

    parts: tuple[Cache, ...]

    def rows(self, index: Tensor) -> "BranchCaches":
        return BranchCaches(tuple(part.rows(index) for part in self.parts))

    def tail(self, count: int, unread: int = 0) -> "BranchCaches":
        return BranchCaches(tuple(part.tail(count, unread) for part in self.parts))


@dataclass(frozen=True, slots=True)
class RNNState(Cache):
    """The last output [B, D] and the cells [B, C]: what a recurrence carries, all that it knows of the past.

    C is 0 where its output is all of its state, as in a GRU.
    """

    h: Tensor
    c: Tensor

    def rows(self, index: Tensor) -> "RNNState":
        return RNNState(self.h[index], self.c[index])

    def first(self, count: int) -> "RNNState":
        return self if count == len(self.h) else RNNState(self.h[:count], self.c[:count])

    def then(self, others: "RNNState") -> "RNNState":
        """These rows, and behind them those of another that are not among them."""
        count = len(self.h)
        if count == len(others.h):
            return self
        return RNNState(torch.cat([self.h, others.h[count:]]), torch.cat([self.c, others.c[count:]]))

    def tail(self, count: int, unread: int = 0) -> "RNNState":
        if unread:
            raise ValueError("a state knows nothing of the time before its last token")
        return self
