"""Writes shards: columns of tokens stream to disk, only borders and counts are held."""

import json
import shutil
import struct
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from clozeworks.data.shards.corpus import TYPES, Counted, describe_split

_NAMES = {dtype: name for name, dtype in TYPES.items()}
_COPIED = 1 << 20  # bytes at once


@dataclass(slots=True)
class Block:
    """Documents, or parts of them, end to end: one row each in `sizes` and `documents`."""

    tokens: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray  # tokens of each sentence, none of them 0
    sizes: np.ndarray  # sentences of each row
    documents: np.ndarray  # the number of the document a row belongs to; it changes where a document begins
    units: np.ndarray | None = None


class ShardWriter:
    """Writes the shards of one split into a directory.

    Add blocks with `add`, then call `close`, which returns the entries of the manifest. A new shard begins at the first
    document border after `shard_tokens` tokens. With `annotated` every shard has the column `units`.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        vocab: int,
        shard_tokens: int = 50_000_000,
        unk: int | None = None,
        annotated: bool = False,
    ):
        self._directory, self._split, self._shard_tokens, self._unk = directory, split, shard_tokens, unk
        self._columns = {
            "tokens": np.dtype("<u2") if vocab < 1 << 16 else np.dtype("<u4"),
            "word_starts": np.dtype("?"),
        }
        if annotated:
            self._columns["units"] = np.dtype("u1")
        self._vocab = vocab
        self.entries: list[dict[str, Any]] = []
        self._streams: dict[str, IO[bytes]] = {}
        self._last: int | None = None  # the document that is being written
        self.document_lengths = np.zeros(64, np.int64)  # [bit length]: how many documents have so many tokens
        self.sentence_lengths = np.zeros(64, np.int64)
        self._begin()

    def add(self, block: Block) -> None:
        """Write a block, into a new shard from the first document border after enough tokens."""
        sentence_ends = np.concatenate([[0], np.cumsum(block.sizes)])
        token_ends = np.concatenate([[0], np.cumsum(block.lengths, dtype=np.int64)])[sentence_ends]
        new = np.diff(block.documents, prepend=-1 if self._last is None else self._last) != 0
        self._last = int(block.documents[-1])
        borders = np.flatnonzero(new)
        at = 0
        while at < len(block.sizes):
            # the first document border, from here on, before which this shard has its tokens
            full = borders[
                (borders >= at) & (self._counted.tokens + token_ends[borders] - token_ends[at] >= self._shard_tokens)
            ]
            end = int(full[0]) if len(full) else len(block.sizes)
            if end > at:
                self._write(block, at, end, sentence_ends, token_ends, new)
            if len(full):
                self._finish()
                self._begin()
            at = end

    def close(self) -> list[dict[str, Any]]:
        if self._counted.tokens:
            self._finish()
        return self.entries

    def abort(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def _write(
        self, block: Block, at: int, end: int, sentence_ends: np.ndarray, token_ends: np.ndarray, new: np.ndarray
    ) -> None:
        """Rows at : end, which end up in the current shard."""
        here = slice(token_ends[at], token_ends[end])
        for name, dtype in self._columns.items():
            column = getattr(block, name)
            column = np.zeros(len(block.tokens), dtype) if column is None else column
            if name not in self._streams:
                self._streams[name] = self._raw(name).open("wb")
            self._streams[name].write(np.ascontiguousarray(column[here], dtype).data)
        counted, tokens = self._counted, block.tokens[here]
        lengths = block.lengths[sentence_ends[at] : sentence_ends[end]]
        begun = counted.sentences + sentence_ends[at + np.flatnonzero(new[at:end])] - sentence_ends[at]
        self._documents.frombytes(begun[begun > 0].astype(np.int64).tobytes())
        self._sentences.frombytes((counted.tokens + np.cumsum(lengths, dtype=np.int64)).tobytes())
        counted.sentences += len(lengths)
        counted.tokens += len(tokens)
        counted.words += int(np.count_nonzero(block.word_starts[here]))
        counts = np.bincount(tokens, minlength=self._vocab)
        self._counts += counts
        counted.unknown += 0 if self._unk is None else int(counts[self._unk])

    def _begin(self) -> None:
        self._counted = Counted()
        self._counts = np.zeros(self._vocab, np.int64)
        self._sentences, self._documents = array("q", [0]), array("q", [0])
        self._streams = {}

    def _raw(self, name: str) -> Path:
        return self._directory / f".{self._split}-{name}"

    def _finish(self) -> None:
        """Put the header before the raw columns, which only now have a known length."""
        self.abort()
        count = self._counted
        self._documents.append(count.sentences)
        count.documents = len(self._documents) - 1
        self._measure()
        file = self._directory / f"{self._split}-{len(self.entries):05}.safetensors"
        # int64 first, bytes last: each tensor then begins at a multiple of its item size, which memory-mapping wants
        tensors: list[tuple[str, np.dtype, int, array | Path]] = [
            ("sentences", np.dtype("<i8"), count.sentences + 1, self._sentences),
            ("documents", np.dtype("<i8"), count.documents + 1, self._documents),
            ("counts", np.dtype("<i8"), self._vocab, array("q", self._counts.tobytes())),
            *((name, dtype, count.tokens, self._raw(name)) for name, dtype in self._columns.items()),
        ]
        header, offset = {}, 0
        for name, dtype, length, _ in tensors:
            end = offset + length * dtype.itemsize
            header[name] = {"dtype": _NAMES[dtype], "shape": [length], "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with file.open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for *_, content in tensors:
                if isinstance(content, Path):
                    with content.open("rb") as raw:
                        shutil.copyfileobj(raw, out, _COPIED)
                    content.unlink()
                else:
                    out.write(memoryview(content))
        self.entries.append({"split": self._split, **describe_split(file), **asdict(count)})

    def _measure(self) -> None:
        sentences = np.frombuffer(self._sentences, np.int64)
        documents = sentences[np.frombuffer(self._documents, np.int64)]
        for total, borders in ((self.sentence_lengths, sentences), (self.document_lengths, documents)):
            total += np.bincount(np.frexp(np.diff(borders))[1], minlength=64)
