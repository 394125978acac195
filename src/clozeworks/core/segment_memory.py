"""What the lanes of a text have been read of, carried from one batch to the next (Dai et al. 2019, 3.2)."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import FORGOTTEN, Batch, Memory, Side
from clozeworks.core.cache import State


class Recall:
    """The memory of each lane, given to the batch that goes on with it and taken from the batch that read it.

    A batch holds some lanes at the same place in time (`example["lane"]`, `example["continues"]`); which lanes share a
    batch may change at any time. Batches without lanes pass through. A model without memory gives nothing to take.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Memory, int]] = {}  # by lane: where it is, and in which row

    def give(self, batch: Batch) -> Batch:
        """The batch with what its lanes remember; nothing where they begin, or where one of them has nothing."""
        lanes = lanes_of(batch)
        if not bool(lanes) or not batch.example["continues"][0]:
            return batch
        found = [self._held[lane] for lane in lanes if lane in self._held]
        if len(found) < len(lanes):
            return batch
        memory = joined(found)
        side = memory.side
        # Rows are told apart by the numbers of their documents, which are those of this batch.
        own = torch.where(side.document < 0, side.document, batch.side.document[:, :1])
        segment = side.segment
        if segment is None and batch.side.segment is not None:
            segment = torch.zeros_like(side.document)
        return dataclasses.replace(
            batch, past=Memory(memory.layers, dataclasses.replace(side, document=own, segment=segment))
        )

    def take(self, batch: Batch, memory: Memory | None) -> None:
        """Remember what a batch read, as the next one will see it."""
        lanes = lanes_of(batch)
        if memory is None or not lanes:
            return
        by = batch.tokens.shape[1] if batch.keep is None else batch.keep
        moved = Memory(memory.layers, memory.side.earlier(by, batch.backward))
        self._held.update({lane: (moved, row) for row, lane in enumerate(lanes)})

    def forget(self) -> None:
        """Every lane begins with nothing."""
        self._held.clear()

    @property
    def length(self) -> int:
        """Rows of the longest memory."""
        return max((memory.side.position.shape[1] for memory, _ in self._held.values()), default=0)

    def state(self, length: int = 0) -> dict[str, Tensor]:
        """What is remembered as tensors with a row a lane, of this length at least; none where nothing is."""
        if not self._held:
            return {}
        lanes = sorted(self._held)
        memory = joined([self._held[lane] for lane in lanes], length)
        side = memory.side
        own = side.document.clamp(max=0)
        state = {"lane": torch.tensor(lanes), "position": side.position, "document": own}
        if side.segment is not None:
            state["segment"] = side.segment
        for depth, rows in enumerate(memory.layers):
            if isinstance(rows, State):
                state |= {f"layer.{depth}.h": rows.h, f"layer.{depth}.c": rows.c}
            elif isinstance(rows, Tensor):
                state[f"layer.{depth}"] = rows
        return {name: rows.contiguous() for name, rows in state.items()}

    def load(self, state: Mapping[str, Tensor], device: torch.device | str = "cpu") -> None:
        """Remember that and nothing else."""
        self.forget()
        if not state:
            return
        here = {name: value.to(device) for name, value in state.items() if name != "lane"}
        before = before_all(here["position"])
        side = Side(here["position"], here["document"], before, before, here.get("segment"))
        depth = len({name.split(".")[1] for name in here if name.startswith("layer.")})
        memory = Memory(tuple(_layer(here, f"layer.{number}") for number in range(depth)), side)
        self._held.update({lane: (memory, row) for row, lane in enumerate(state["lane"].tolist())})


def _layer(found: Mapping[str, Tensor], name: str) -> Tensor | State:
    return found[name] if name in found else State(found[f"{name}.h"], found[f"{name}.c"])


def lanes_of(batch: Batch) -> list[int]:
    """The lane of each row; none where rows are not the continuation of others."""
    return batch.example["lane"].tolist() if "lane" in batch.example else []


def before_all(position: Tensor) -> Tensor:
    """[B, M]: numbers below 0, by which every row that comes sees these."""
    return torch.arange(-position.shape[1], 0, device=position.device).expand_as(position)


def joined(found: Sequence[tuple[Memory, int]], length: int = 0) -> Memory:
    """One memory of these rows, of this length at least; a shorter one has forgotten rows before it."""
    first = found[0][0]
    longest = max(length, *(memory.side.position.shape[1] for memory, _ in found))
    whole = all(memory is first for memory, _ in found) and [row for _, row in found] == list(range(rows_of(first)))
    if whole and longest == first.side.position.shape[1]:
        return first

    def rows(values: Sequence[Tensor], blank: int = 0) -> Tensor:
        return torch.stack([_before(value, longest, blank) for value in values])

    def layer(depth: int) -> Tensor | State:
        states = [(value, row) for memory, row in found if isinstance(value := memory.layers[depth], State)]
        if states:
            h, c = ([getattr(value, name)[row] for value, row in states] for name in ("h", "c"))
            return State(torch.stack(h), torch.stack(c))
        return rows([value[row] for memory, row in found if isinstance(value := memory.layers[depth], Tensor)])

    layers = tuple(layer(depth) for depth in range(len(first.layers)))
    sides = [memory.side.each(lambda value, row=row: value[row]) for memory, row in found]
    position = rows([side.position for side in sides])
    segments = [side.segment for side in sides if side.segment is not None]
    segment = rows(segments) if len(segments) == len(sides) else None
    before = before_all(position)
    return Memory(layers, Side(position, rows([side.document for side in sides], FORGOTTEN), before, before, segment))


def rows_of(memory: Memory) -> int:
    return len(memory.side.position)


def _before(value: Tensor, length: int, blank: int) -> Tensor:
    """[M, ...] -> [length, ...], blank at its beginning."""
    missing = length - len(value)
    return F.pad(value, (0, 0) * (value.ndim - 1) + (missing, 0), value=blank) if missing else value
