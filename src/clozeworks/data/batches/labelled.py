"""Labelled rows as examples, and batches of them: packed like text, in an order that depends on (seed, epoch) alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from clozeworks.core import counter_rng
from clozeworks.core.batch import Batch
from clozeworks.core.examples import RaggedBatch, ragged_arange
from clozeworks.core.token_info import Kind
from clozeworks.data.batches import sides
from clozeworks.data.batches.rows import fill_rows, pack, take_rows
from clozeworks.data.tokens.tokenizer import Tokenizer

ROW = 256  # tokens that examples share a row of, where none is longer


@dataclass(slots=True)
class Labelled:
    """Examples in units. A unit is learned from at once and never torn apart: a row of the table, the options of a
    question, a window of a long text; unit u has the examples first[u] : first[u + 1]."""

    examples: RaggedBatch
    first: np.ndarray  # int64 [units + 1]
    row: np.ndarray  # int64 [units]: which row of the table it is of
    offsets: np.ndarray | None = None  # int64 [tokens, 2]: characters in the text that answers are cut from; -1: none
    kind: Kind | None = None  # who sees whom in them; None: as the model reads any text
    two_sided: bool = False  # of each the tokens of segment 1 are written from those of segment 0, rows of their own
    tokenizer: Tokenizer | None = None  # that answers are written with

    def __len__(self) -> int:
        return len(self.row)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each unit."""
        return self.examples.first[self.first[1:]] - self.examples.first[self.first[:-1]]

    @property
    def sizes(self) -> np.ndarray:
        """[units, 2]: tokens of each side of each unit, where there are two."""
        sources = np.concatenate([[0], np.cumsum(self.examples.fields[sides.SOURCE])])
        source = sources[self.first[1:]] - sources[self.first[:-1]]
        return np.stack([source, self.lengths - source], 1)

    @staticmethod
    def one_each(examples: RaggedBatch) -> "Labelled":
        """An example a row."""
        return Labelled(examples, np.arange(len(examples) + 1), np.arange(len(examples)))


def make_batch(labelled: Labelled, units: np.ndarray, kind: Kind, pad: int, most: int | None = None) -> list[Batch]:
    """Some units as one step: packed into rows, those cut into micro-batches of at most `most` tokens."""
    lengths = labelled.lengths[units]
    shared = pack_pairs(labelled.sizes[units]) if labelled.two_sided else pack_examples(lengths)
    rows = [np.sort(units[row]) for row in shared]
    sizes = labelled.sizes if labelled.two_sided else labelled.lengths[:, None]
    widths = np.stack([sizes[row].sum(0) for row in rows])
    many = len(rows) if most is None else max(1, most // int(widths.sum(1).max()))
    batches = []
    for begin in range(0, len(rows), many):
        batch = _collated(labelled, rows[begin : begin + many], kind, pad, tuple(widths.max(0).tolist()))
        batch.row = begin
        batches.append(batch)
    return batches


def pack_examples(lengths: np.ndarray) -> list[list[int]]:
    """Which units share a row: as few rows as `ROW` tokens each would make, and as narrow as that many can be."""
    longest, total = int(lengths.max()), int(lengths.sum())
    rows = -(-total // max(ROW, longest))
    width = max(longest, -(-total // rows))
    while len(shared := pack(lengths, width)) > rows:
        width += max(width // 50, 1)
    return shared


def pack_pairs(sizes: np.ndarray) -> list[list[int]]:
    """The same of units with two sides, sizes [units, 2]: rows of sources and of targets are as many."""
    longest, total = sizes.max(0), sizes.sum(0)
    rows = int((-(-total // np.maximum(ROW, longest))).max())
    rooms = np.maximum(longest, -(-total // rows))
    while len(shared := sides.pack(sizes, tuple(rooms.tolist()))) > rows:
        rooms = rooms + np.maximum(rooms // 50, 1)
    return shared


def _collated(labelled: Labelled, rows: list[np.ndarray], kind: Kind, pad: int, widths: tuple[int, ...]) -> Batch:
    units = np.concatenate(rows)
    counts = labelled.first[units + 1] - labelled.first[units]
    ragged = take_rows(labelled.examples, ragged_arange(labelled.first[units], counts))
    per_row = np.array([int((labelled.first[row + 1] - labelled.first[row]).sum()) for row in rows])
    batch = fill_rows(ragged, per_row, labelled.kind or kind, pad, labelled.two_sided, widths)
    batch.example["unit"] = torch.from_numpy(np.repeat(np.arange(len(units)), counts))
    batch.index = tuple(units.tolist())
    return batch


def order(units: int, seed: int, epoch: int) -> np.ndarray:
    return counter_rng.permutation(units, counter_rng.fold(seed, "epoch", epoch))


def by_length(labelled: Labelled, kind: Kind, pad: int, tokens: int) -> Iterator[Batch]:
    """All units in batches of about so many tokens, the longest first: like lengths share rows."""
    lengths = labelled.lengths
    longest = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(longest):
        end = at + max(1, int(np.searchsorted(np.cumsum(lengths[longest[at:]]), tokens, side="right")))
        yield from make_batch(labelled, longest[at:end], kind, pad)
        at = end
