"""What the streams of a text have been read of, carried from one batch to the next (Dai et al. 2019, 3.2)."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch
from clozeworks.core.cache import RNNState
from clozeworks.core.context import Memory
from clozeworks.core.token_info import FORGOTTEN, TokenInfo


class SegmentMemory:
    """The memory of each stream, given to the batch that continues it and taken from the batch that read it.

    A batch holds some streams at the same place in time (`example["stream"]`, `example["continues"]`); which streams
    share a batch may change at any time. Batches without streams pass through. A model without memory gives
    nothing to take.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Memory, int]] = {}  # by stream: where it is, and in which row

    def give(self, batch: Batch) -> Batch:
        """The batch with what its streams remember; nothing where they begin, or where one of them has nothing."""
        streams = list_streams(batch)
        if not bool(streams) or not batch.example["continues"][0]:
            return batch
        memories = [self._held[stream] for stream in streams if stream in self._held]
        if len(memories) < len(streams):
            return batch
        memory = join_memories(memories)
        side = memory.token_info
        # Rows are distinguished by the numbers of their documents, which are those of this batch.
        own = torch.where(side.document < 0, side.document, batch.token_info.document[:, :1])
        segment = side.segment
        if segment is None and batch.token_info.segment is not None:
            segment = torch.zeros_like(side.document)
        return batch.replace(past=Memory(memory.layers, dataclasses.replace(side, document=own, segment=segment)))

    def take(self, batch: Batch, memory: Memory | None) -> None:
        """Remember what a batch read, as the next one will see it."""
        streams = list_streams(batch)
        if memory is None or not streams:
            return
        by = batch.tokens.shape[1] if batch.keep is None else batch.keep
        moved = Memory(memory.layers, memory.token_info.earlier(by, batch.backward))
        self._held.update({stream: (moved, row) for row, stream in enumerate(streams)})

    def forget(self) -> None:
        """Every stream begins with nothing."""
        self._held.clear()

    @property
    def length(self) -> int:
        """Rows of the longest memory."""
        return max((memory.token_info.position.shape[1] for memory, _ in self._held.values()), default=0)

    def state(self, length: int = 0) -> dict[str, Tensor]:
        """What is remembered as tensors with a row a stream, of this length at least; none where nothing is."""
        if not self._held:
            return {}
        streams = sorted(self._held)
        memory = join_memories([self._held[stream] for stream in streams], length)
        side = memory.token_info
        own = side.document.clamp(max=0)
        state = {"stream": torch.tensor(streams), "position": side.position, "document": own}
        if side.segment is not None:
            state["segment"] = side.segment
        for depth, rows in enumerate(memory.layers):
            if isinstance(rows, RNNState):
                state |= {f"layer.{depth}.h": rows.h, f"layer.{depth}.c": rows.c}
            elif isinstance(rows, Tensor):
                state[f"layer.{depth}"] = rows
        return {name: rows.contiguous() for name, rows in state.items()}

    def load(self, state: Mapping[str, Tensor], device: torch.device | str = "cpu") -> None:
        """Remember that and nothing else."""
        self.forget()
        if not state:
            return
        here = {name: value.to(device) for name, value in state.items() if name != "stream"}
        before = before_all(here["position"])
        side = TokenInfo(here["position"], here["document"], before, before, here.get("segment"))
        depth = len({name.split(".")[1] for name in here if name.startswith("layer.")})
        memory = Memory(tuple(_layer(here, f"layer.{number}") for number in range(depth)), side)
        self._held.update({stream: (memory, row) for row, stream in enumerate(state["stream"].tolist())})


def _layer(state: Mapping[str, Tensor], name: str) -> Tensor | RNNState:
    return state[name] if name in state else RNNState(state[f"{name}.h"], state[f"{name}.c"])


def list_streams(batch: Batch) -> list[int]:
    """The stream of each row; none where rows are not the continuation of others."""
    return batch.example["stream"].tolist() if "stream" in batch.example else []


def before_all(position: Tensor) -> Tensor:
    """[B, M]: numbers below 0, by which every row that comes sees these."""
    return torch.arange(-position.shape[1], 0, device=position.device).expand_as(position)


def join_memories(memories: Sequence[tuple[Memory, int]], length: int = 0) -> Memory:
    """One memory of these rows, of this length at least; a shorter one has forgotten rows before it."""
    first = memories[0][0]
    longest = max(length, *(memory.token_info.position.shape[1] for memory, _ in memories))
    same = all(memory is first for memory, _ in memories)
    whole = same and [row for _, row in memories] == list(range(count_rows(first)))
    if whole and longest == first.token_info.position.shape[1]:
        return first

    def rows(values: Sequence[Tensor], blank: int = 0) -> Tensor:
        return torch.stack([_before(value, longest, blank) for value in values])

    def layer(depth: int) -> Tensor | RNNState:
        states = [(value, row) for memory, row in memories if isinstance(value := memory.layers[depth], RNNState)]
        if states:
            h, c = ([getattr(value, name)[row] for value, row in states] for name in ("h", "c"))
            return RNNState(torch.stack(h), torch.stack(c))
        return rows([value[row] for memory, row in memories if isinstance(value := memory.layers[depth], Tensor)])

    layers = tuple(layer(depth) for depth in range(len(first.layers)))
    sides = [memory.token_info.each(lambda value, row=row: value[row]) for memory, row in memories]
    position = rows([side.position for side in sides])
    segments = [side.segment for side in sides if side.segment is not None]
    segment = rows(segments) if len(segments) == len(sides) else None
    before = before_all(position)
    return Memory(
        layers, TokenInfo(position, rows([side.document for side in sides], FORGOTTEN), before, before, segment)
    )


def count_rows(memory: Memory) -> int:
    return len(memory.token_info.position)


def _before(value: Tensor, length: int, blank: int) -> Tensor:
    """[M, ...] -> [length, ...], blank at its beginning."""
    missing = length - len(value)
    return F.pad(value, (0, 0) * (value.ndim - 1) + (missing, 0), value=blank) if missing else value
