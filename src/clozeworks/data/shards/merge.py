"""Units into shards: who is a copy, who is held out, and the columns of all the others in order.

Nothing here holds the corpus: the table of documents lies on disk (18 bytes each), and copies are looked for in slices
of the hash space, so memory stays at one unit, the borders of one shard, and one slice.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.data.shards import units
from clozeworks.data.shards.corpus import SPLITS
from clozeworks.data.shards.writer import Block, ShardWriter

_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("filled", "?"), ("kept", "?")])
SLICE = 1 << 20  # documents compared at once
BLOCK = 1 << 16  # rows of the table read at once


@dataclass(slots=True)
class Totals:
    """What the units counted, summed up."""

    counts: Counter[str] = field(default_factory=Counter)
    unknowns: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


class Table:
    """One row a document: its hash, whether it has a token, whether it stays. Lives on disk."""

    def __init__(self, file: Path, files: list[Path]):
        self.totals = Totals()
        with file.open("wb") as out:
            for rows in self._rows(files):
                out.write(rows.tobytes())
        size = file.stat().st_size // _ROW.itemsize
        self.rows: np.ndarray = np.memmap(file, _ROW, "r+") if size else np.zeros(0, _ROW)

    def _rows(self, files: list[Path]) -> Iterator[np.ndarray]:
        last: np.ndarray | None = None  # a document that may continue in the next unit
        for file in files:
            made = _read(file, ("sizes", "begins", "keys", "lengths"))
            self._add(made)
            begins, keys, sizes = made.columns["begins"], made.columns["keys"], made.columns["sizes"]
            number = np.cumsum(begins) - 1 + (last is not None)
            rows = np.zeros(int(number[-1]) + 1 if len(number) else int(last is not None), _ROW)
            if last is not None:
                rows[0] = last[0]
            rows["high"][number[begins]], rows["low"][number[begins]] = keys[begins].T
            np.logical_or.at(rows["filled"], number, sizes > 0)
            for at in np.flatnonzero(~begins).tolist():  # the hash of a document in parts is the hash of their hashes
                row = rows[number[at]]
                both = row["high"].tobytes() + row["low"].tobytes() + keys[at].tobytes()
                row["high"], row["low"] = np.frombuffer(hashlib.blake2b(both, digest_size=16).digest(), "<u8")
            rows["kept"] = True
            yield rows[:-1]
            last = rows[-1:].copy()
        if last is not None:
            yield last

    def _add(self, made: units.TokenizedUnit) -> None:
        totals = self.totals
        totals.counts.update(made.counts)
        totals.unknowns.update(made.unknowns)
        if len(totals.unknowns) > 20 * units.UNKNOWNS:
            totals.unknowns = Counter(dict(totals.unknowns.most_common(10 * units.UNKNOWNS)))
        totals.complaints += made.complaints[: 3 - len(totals.complaints)]

    def drop_copies(self) -> int:
        """Let only the first of equal documents stay; how many go."""
        dropped = 0
        slices = 1 << max(0, (len(self.rows) - 1).bit_length() - SLICE.bit_length() + 1)
        for number in range(slices):
            mask = np.uint64(slices - 1)
            at = [start + np.flatnonzero((block["high"] & mask) == number) for start, block in self._blocks()]
            at = np.concatenate(at)
            keys = self.rows[at][["high", "low"]]
            order = np.lexsort((at, keys["low"], keys["high"]))
            same = (np.diff(keys["high"][order]) == 0) & (np.diff(keys["low"][order]) == 0)
            copies = at[order[1:][same]]
            self.rows["kept"][copies] = False
            dropped += int(self.rows["filled"][copies].sum())
        return dropped

    def border(self, share: float) -> int:
        """Documents whose hash lies below are held out; both splits get one where there are two different documents."""
        lowest, highest = 1 << 64, -1
        for _, block in self._blocks():
            high = block["high"][block["kept"] & block["filled"]]
            if len(high):
                lowest, highest = min(lowest, int(high.min())), max(highest, int(high.max()))
        if share == 0 or lowest >= highest:
            return 0
        return min(max(int(share * (1 << 64)), lowest + 1), highest)

    def empty(self) -> int:
        return sum(int((~block["filled"]).sum()) for _, block in self._blocks())

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, len(self.rows), BLOCK):
            yield start, self.rows[start : start + BLOCK]


def write_shards(table: Table, files: list[Path], writers: list[ShardWriter], border: int) -> Iterator[int]:
    """Every kept document into its split, unit by unit; yields how many units are done."""
    at = 0  # documents begun before this unit
    for done, file in enumerate(files, 1):
        columns = _read(file).columns
        begins, sizes, lengths = columns["begins"], columns["sizes"], columns["lengths"]
        number = at + np.cumsum(begins) - 1
        at += int(begins.sum())
        held = table.rows["high"][number] < np.uint64(border)
        kept = table.rows["kept"][number] & (sizes > 0)
        of_sentence = np.repeat(np.arange(len(sizes)), sizes)
        for split in range(len(SPLITS)):
            rows = kept & (held == bool(split))
            if not rows.any():
                continue
            sentences = rows[of_sentence]
            tokens = slice(None) if sentences.all() else np.repeat(sentences, lengths)
            taken = {name: columns[name][tokens] for name in ("tokens", "word_starts", "units") if name in columns}
            block = Block(**taken, lengths=lengths[sentences], sizes=sizes[rows], documents=number[rows])
            writers[split].add(block)
        yield done


def _read(file: Path, names: tuple[str, ...] | None = None) -> units.TokenizedUnit:
    made = units.read(file, names)
    if made is None:
        raise InputError(file, "unreadable", "a unit that was written before", "run the command again")
    return made
