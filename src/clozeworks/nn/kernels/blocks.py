"""Rows cut into blocks of neighbouring queries with the keys near them, each a row of its own to what comes after.

A bias knows tokens by their places and a context. A block has both: its queries stand `left` places after its first
key, so that distance in it is distance in the text, and a learned distance needs to know nothing of windows. Time and
memory are linear in length; every key is copied as often as blocks look at it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.cache import KVCache
from clozeworks.core.context import Context
from clozeworks.core.token_info import FORGOTTEN, TokenInfo, visible
from clozeworks.nn.window import Window

QUERIES = 64  # of a block


@dataclass(frozen=True, slots=True)
class Blocks:
    """n blocks a row: [B, L] -> [B * n, Q], [B, M] -> [B * n, K]."""

    asking: Tensor  # [n * Q] which query; behind the last one it again
    near: Tensor  # [n * K] which key; beyond the ends of the row some other, hidden
    query: TokenInfo
    memory: TokenInfo
    left: int
    length: int
    scratch: dict[str, Any]  # shared by all layers of one pass

    @staticmethod
    def of(context: Context, window: Window) -> "Blocks":
        """Of a regular context; the same for all layers of a pass with this window."""
        return context.once(f"blocks.{window}", lambda: _cut(context, window))

    def queries(self, q: Tensor) -> Tensor:
        """[B, H, L, d] -> [B * n, H, Q, d]."""
        return self._gather(q, self.asking, self.query)

    def keys(self, keys: KVCache) -> KVCache:
        return KVCache(self._gather(keys.k, self.near, self.memory), self._gather(keys.v, self.near, self.memory))

    def inner(self, context: Context) -> Context:
        """What the blocks of a layer know: what is beyond the window is hidden like what may not be seen."""
        key = context.key
        if key is not None:
            rows = len(self.query.position)
            key = key.within(torch.arange(rows, device=key.seeds.device), rows)
        return context.replace(
            query=self.query, memory=self.memory, kind="order", offset=self.left, layout=None, past=None, most_marked=0,
            key=key, positions=None, targets=None, scratch=self.scratch,
        )  # fmt: skip

    def back(self, mixed: Tensor) -> Tensor:
        """[B * n, H, Q, d] -> [B, H, L, d]."""
        count = len(self.asking) // QUERIES
        return mixed.transpose(1, 2).unflatten(0, (-1, count)).flatten(1, 2)[:, : self.length].transpose(1, 2)

    @staticmethod
    def _gather(x: Tensor, index: Tensor, side: TokenInfo) -> Tensor:
        rows, size = side.position.shape
        return x.transpose(1, 2).index_select(1, index).reshape(rows, size, x.shape[1], -1).transpose(1, 2)


def _cut(context: Context, window: Window) -> Blocks:
    assert context.offset is not None
    (rows, length), memory = context.query.position.shape, context.memory.position.shape[1]
    device = context.query.position.device
    right = 0 if context.kind == "causal" else window.after
    starts = torch.arange(0, length, QUERIES, device=device)[:, None]
    asking = (starts + torch.arange(QUERIES, device=device)).clamp(max=length - 1)
    reach = starts + context.offset - window.left + torch.arange(window.left + QUERIES + right, device=device)
    near, beyond = reach.clamp(0, memory - 1), (reach < 0) | (reach >= memory)
    cut = lambda side, index: side.each(lambda value: value[:, index].flatten(0, 1))  # noqa: E731
    query, keys = cut(context.query, asking), cut(context.memory, near)
    hidden = beyond.expand(rows, -1, -1).flatten(0, 1)
    keys = dataclasses.replace(keys, document=keys.document.masked_fill(hidden, FORGOTTEN))
    mask = visible(query, keys)[:, None] & window.near(Context.make(query, keys))
    return Blocks(asking.flatten(), near.flatten(), query, keys, window.left, length, {"mask": mask})
