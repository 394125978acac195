"""Where the hidden spans of a batch lie, for losses that predict a span from the tokens beside it."""

import numpy as np
import torch

from clozeworks.core.batch import Spans
from clozeworks.core.examples import RaggedBatch, ragged_arange


def locate_spans(ragged: RaggedBatch, chosen: np.ndarray, at: np.ndarray) -> Spans | None:
    """The spans with an ordinary token of their own piece on both sides; None where nothing was hidden in spans.

    chosen [T] are the tokens to be predicted, ascending; at [tokens] is the flat offset of each token in the batch.
    """
    if ragged.span is None:
        return None
    inside = np.flatnonzero(ragged.span >= 0)
    # Spans that meet at the border of two examples may seem one here: each stands at an edge, and is left out below.
    begins = np.ones(len(inside) + 1, dtype=bool)  # and one more, behind the last
    begins[1:-1] = (np.diff(inside) > 1) | (np.diff(ragged.span[inside]) != 0)
    first, last = inside[begins[:-1]], inside[begins[1:]]

    behind = last + 1 < len(ragged.tokens)
    left, right = np.maximum(first - 1, 0), last + behind
    whole = (first > 0) & behind & ~ragged.special[left] & ~ragged.special[right]
    for edge in (left, right):
        whole &= ragged.segment[edge] == ragged.segment[first]
        whole &= np.searchsorted(ragged.first, edge, "right") == np.searchsorted(ragged.first, first, "right")
    first, left, right = first[whole], left[whole], right[whole]

    size = last[whole] - first + 1
    place = ragged_arange(np.zeros_like(size), size)
    order = np.argsort(place, kind="stable")
    target = np.searchsorted(chosen, ragged_arange(first, size)[order])
    span = np.repeat(np.arange(len(size)), size)[order]
    edges = np.unique(np.concatenate([left, right]))
    columns = (target, at[left[span]], at[right[span]], place[order], at[edges])
    return Spans(*(torch.from_numpy(column) for column in columns), counts=tuple(np.bincount(place).tolist()))
