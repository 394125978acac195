"""From products with vectors of distances to products with keys."""

import torch
from torch import Tensor

from clozeworks.core.context import Context
from clozeworks.nn.mixer import Apart


def span(context: Context) -> tuple[int, int, Tensor | None]:
    """The largest and the smallest distance that occurs, and which one each pair has: [B, 1, L, M], counted from the
    largest down; None where `shifted` finds it. Past keys have positive distances."""
    length, memory = context.query.position.shape[1], context.memory.position.shape[1]
    if context.offset is not None:
        first = length - 1 + context.offset
        # One row more than the causal distances, or than all of them: what `shifted` needs.
        return first, first - memory - (0 if context.kind == "causal" else length - 1), None
    distance = context.query.position[:, :, None] - context.memory.position[:, None, :]
    if distance.is_meta:  # shapes alone
        return memory, 1 - length, distance[:, None]
    first, last = int(distance.max()), int(distance.min())
    return first, last, (first - distance)[:, None]


def distances(first: int, last: int, context: Context) -> Tensor:
    """[1 or 2, R] from `first` down to `last`; the second row, where rows may be read backwards, has the other sign."""
    down = torch.arange(first, last - 1, -1, device=context.query.position.device)
    return down[None] if context.backward is None or context.offset is None else torch.stack([down, -down])


def positive(context: Context) -> Tensor:
    """[B, 1, L, M]: how far before the query a key stands."""
    return context.once(
        "positive", lambda: (context.query.position[:, :, None] - context.memory.position[:, None, :])[:, None]
    )


def spread(apart: Apart, index: Tensor | None, context: Context, scale: float) -> Tensor:
    """[B, H, L, M]: the products with vectors of distances where their keys are, `index` being what `span` gives."""
    by_distance = apart.asked * scale @ apart.table.transpose(-1, -2)
    if index is None:
        return shifted(by_distance, context.memory.position.shape[1])
    return by_distance.gather(-1, index.expand(-1, by_distance.shape[1], -1, -1))


def shifted(scores: Tensor, memory: int) -> Tensor:
    """[..., L, R] by distance, the largest of the last query first -> [..., L, M] by key, as a view.

    In query i's row, key j is i places further to the left than in the first query's: to a reader whose rows are one
    shorter they stand one below the other. What a causal query has beyond its own place is that of the next.
    """
    length, rows = scores.shape[-2:]
    flat = scores.flatten(-2)[..., length - 1 : length - 1 + length * (rows - 1)]
    return flat.unflatten(-1, (length, rows - 1))[..., :memory]
