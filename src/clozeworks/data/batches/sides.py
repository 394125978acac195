"""Examples of two sides: a source, segment 0, and what is written from it, segment 1."""

import dataclasses

import numpy as np

from clozeworks.core.examples import NOTHING, ExamplePlan, RaggedBatch, ragged_arange

COLUMNS = ("tokens", "special", "word_starts", "units", "sentence_starts", "marked")
SOURCE = "source"  # the field of `join`


def split_sides(ragged: RaggedBatch) -> tuple[RaggedBatch, RaggedBatch]:
    """Source and target of the examples, in the same order; the fields of an example stay with its target."""
    source = _part(ragged, ragged.segment == 0)
    source.labels, source.fields = np.full(len(source.tokens), NOTHING, dtype=np.int32), {}
    return source, _part(ragged, ragged.segment != 0)


def join(source: RaggedBatch, target: RaggedBatch) -> RaggedBatch:
    """Examples that have both, the target behind its source: segments 0 and 1, the labels of each, and as a field how
    many tokens are of the source. Tokens are marked in sources alone."""
    lengths = np.stack([source.lengths, target.lengths], 1)
    starts = np.stack([source.first[:-1], target.first[:-1] + len(source.tokens)], 1)
    at = ragged_arange(starts.ravel(), lengths.ravel())
    marked = None
    if source.marked is not None:
        marked = np.concatenate([source.marked, np.zeros(len(target.tokens), bool)])[at]

    def both(name: str) -> np.ndarray:
        return np.concatenate([getattr(source, name), getattr(target, name)])[at]

    return RaggedBatch(
        tokens=both("tokens"),
        first=np.concatenate([[0], np.cumsum(lengths.sum(1))]),
        segment=np.repeat(np.tile(np.array([0, 1], np.int8), len(source)), lengths.ravel()),
        special=both("special"),
        word_starts=both("word_starts"),
        labels=both("labels"),
        fields={SOURCE: source.lengths},
        marked=marked,
    )


def _part(ragged: RaggedBatch, chosen: np.ndarray) -> RaggedBatch:
    counts = np.bincount(ragged.example[chosen], minlength=len(ragged))
    columns = {name: column[chosen] for name in COLUMNS if (column := getattr(ragged, name)) is not None}
    return dataclasses.replace(
        ragged,
        first=np.concatenate([[0], np.cumsum(counts)]),
        segment=np.zeros(int(chosen.sum()), dtype=ragged.segment.dtype),
        labels=ragged.labels[chosen],
        **columns,
    )


def sizes(plan: ExamplePlan, chosen: np.ndarray) -> np.ndarray:
    """[examples, 2]: tokens of each side as a model reads them; the last of a target is only predicted."""
    first = plan.first[chosen]
    return np.stack([plan.sizes(first), plan.sizes(first + 1) - 1], axis=1)


def pack(sizes: np.ndarray, rooms: tuple[int, ...]) -> list[list[int]]:
    """Which examples share a row, each side within its room: those that fill theirs most are placed first, each where
    it leaves least. A row is full when either side is."""
    shares = sizes / np.asarray(rooms)
    left = np.empty((len(sizes), 2))  # of the rows that are open
    rows: list[list[int]] = []
    for item in np.argsort(-shares.max(1), kind="stable").tolist():
        after = left[: len(rows)] - shares[item]
        fits = (after > -1e-9).all(1)
        if fits.any():
            row = int(np.where(fits, after.sum(1), np.inf).argmin())
        else:
            row = len(rows)
            rows.append([])
            left[row] = 1.0
        rows[row].append(item)
        left[row] -= shares[item]
    return rows
