"""One stack that has read a source, and writes behind it."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.cache import Cache, KVCache
from clozeworks.core.context import Context, Memory
from clozeworks.core.token_info import PADDING, TokenInfo
from clozeworks.inference.generation import IncrementalReader
from clozeworks.model import Model


class PrefixLMDecoder(IncrementalReader):
    """A model that has read sources of several lengths, [B, n] padded on the right, and remembers keys and values.

    What is written sees its source and what was written before it; the source sees itself, both ways, or `kind` =
    causal, from its first token on. The first token given to `read` is the last one of each source, which has been read
    with the others. Without `cache`, or where a mixer remembers anything but keys, all is read again each time: behind
    a shorter source there is padding, which keys can hide and a convolution cannot.
    """

    def __init__(
        self,
        model: Model,
        source: Batch,
        kind: Literal["prefix", "causal"] = "prefix",
        segments: bool = True,
        cache: bool = True,
    ):
        super().__init__(model, cache)
        self.kind: Literal["prefix", "causal"] = kind
        self.sources, self.segments, self.marked = source.tokens, segments, source.token_info.marked
        self.lengths = (source.token_info.document != PADDING).sum(1)
        self.last = self._whole()

    def read(self, tokens: Tensor) -> Tensor:
        tokens = tokens.to(self.device)
        if self.tokens is None:
            self.tokens = tokens[:, 1:]
            return self.logits(self.last)
        self.tokens = torch.cat([self.tokens, tokens], 1)
        self.last = self._further(tokens) if self.cache else self._whole()
        return self.logits(self.last)

    @torch.no_grad()
    def _whole(self) -> Tensor:
        """[B, D]: the last vectors of the sources and what has been written behind them."""
        written = self.sources[:, :0] if self.tokens is None else self.tokens
        rows, count = written.shape
        width = self.sources.shape[1] + count
        at = torch.arange(width, device=self.device).expand(rows, width)
        source, real = at < self.lengths[:, None], at < self.lengths[:, None] + count
        tokens = torch.cat([self.sources, written], 1)
        if count:
            tokens = torch.where(source, tokens, 0).masked_scatter(real & ~source, written)
        segment = (real & ~source).long() if self.segments else None
        marked = None if self.marked is None else torch.cat([self.marked, torch.zeros_like(written).bool()], 1)
        batch = from_padded(tokens, real, segment, "causal" if self.kind == "causal" else "full", marked)
        if self.kind == "prefix" and count:
            order = torch.where(source | ~real, 0, at - self.lengths[:, None] + 1)
            batch = batch.replace(
                token_info=dataclasses.replace(batch.token_info, appears=order, sees=order), kind="prefix"
            )
        hidden = self.model.encoder(batch.tokens, batch.token_info, batch.context(carry=self.cache))
        self.past = hidden.memory
        if self.past is None or not all(isinstance(layer, KVCache) for layer in self.past.layers):
            self.cache, self.past = False, None
        return hidden.last[torch.arange(rows, device=self.device), self.lengths + count - 1]

    @torch.no_grad()
    def _further(self, fresh: Tensor) -> Tensor:
        """[B, 1] -> [B, D]; what was read before them is remembered, the padding of shorter sources among it unseen."""
        assert self.tokens is not None
        place = torch.full_like(fresh, self.tokens.shape[1])
        position = self.lengths[:, None] + place - 1
        order = position if self.kind == "causal" else place
        segment = torch.ones_like(fresh) if self.segments else None
        side = TokenInfo(position, torch.zeros_like(fresh), order, order, segment)
        if self.past is not None and self.past.token_info.marked is not None:
            side = dataclasses.replace(side, marked=torch.zeros_like(fresh).bool())
        context = Context.make(side, side, self.kind, offset=None, past=self.past, carry=True)
        hidden = self.model.encoder(fresh, side, context)
        self.past = hidden.memory
        return hidden.last[:, -1]

    def spread(self, count: int) -> None:
        self._take(torch.arange(len(self.sources), device=self.device).repeat_interleave(count))

    def keep(self, rows: Tensor) -> None:
        rows = rows.to(self.device)
        assert self.tokens is not None
        self.tokens = self.tokens[rows]
        self._take(rows)

    def _take(self, rows: Tensor) -> None:
        self.sources, self.lengths, self.last = self.sources[rows], self.lengths[rows], self.last[rows]
        self.marked = None if self.marked is None else self.marked[rows]
        if self.past is not None:
            layers = tuple(layer.rows(rows) if isinstance(layer, Cache) else layer[rows] for layer in self.past.layers)
            self.past = Memory(layers, self.past.token_info.each(lambda value: value[rows]))
