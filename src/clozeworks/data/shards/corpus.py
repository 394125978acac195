"""Prepared text on disk: safetensors shards that are memory-mapped, and a manifest that knows their hashes.

    tokenizer.json  tokenizer_config.json  manifest.json  train-00000.safetensors ...  heldout-00000.safetensors ...

A shard holds whole documents: `tokens` (uint16, or uint32 for large vocabularies), `word_starts` (bool, one a token),
`units` (uint8, one a token, only of annotated text), `sentences` (int64 [S+1], token offsets), `documents` (int64
[D+1], sentence offsets) and `counts` (int64 [vocabulary], how often each token occurs in this shard).
"""

import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clozeworks.core import checksummed_json
from clozeworks.core.errors import InputError, suggest
from clozeworks.core.examples import Columns
from clozeworks.core.json_reader import parse_json, read_json

FORMAT = 2
MANIFEST = "manifest.json"
SPLITS = ("train", "heldout")
TYPES = {
    "U8": np.dtype("u1"), "U16": np.dtype("<u2"), "U32": np.dtype("<u4"), "BOOL": np.dtype("?"), "I64": np.dtype("<i8")
}  # fmt: skip


@dataclass(slots=True)
class Counted:
    """What a shard or a split holds; `unknown` are the tokens that are [UNK]."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    tokens: int = 0
    unknown: int = 0


def hash_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def describe_split(file: Path) -> dict[str, Any]:
    """A file as the manifest knows it again."""
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": hash_file(file)}


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a prepared directory, or a sentence saying why it is none."""
    directory = Path(directory)
    file = directory / MANIFEST
    todo = "run `clozeworks prepare TEXT... --out DIR` first"
    if not directory.is_dir():
        raise InputError(directory, "no such directory", "a prepared directory is needed", todo)
    if not file.is_file():
        raise InputError(directory, f"no {MANIFEST} in it", "a prepared directory is needed", todo)
    try:
        manifest = read_json(file, dict)
        version = manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise InputError(file, "not a manifest of ours", "a prepared directory is needed", todo) from None
    if version != FORMAT:
        raise InputError(file, f"format {version}", f"format {FORMAT} is needed", "prepare the text again")
    if checksummed_json.broken(manifest):
        raise _changed(file, "other content than when it was written")
    return manifest


def fingerprint(manifest: dict[str, Any]) -> str:
    """SHA-256 of what was prepared (tokenizer, shards, counts), not of when and from which path."""
    content = {key: manifest[key] for key in ("format", "tokenizer", "shards", "splits")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Corpus:
    """One split of a prepared directory, memory-mapped: positions are token offsets that run through all its shards."""

    def __init__(self, directory: Path, split: str, manifest: dict[str, Any]):
        self.directory, self.split, self.manifest = directory, split, manifest
        entries = [entry for entry in manifest["shards"] if entry["split"] == split]
        shards = [_map(directory / entry["file"]) for entry in entries]
        self._tokens = [shard["tokens"] for shard in shards]
        self._word_starts = [shard["word_starts"] for shard in shards]
        self._units = [shard["units"] for shard in shards] if all("units" in shard for shard in shards) else None
        self._counts = [shard["counts"] for shard in shards]
        self._firsts = np.cumsum([0] + [len(tokens) for tokens in self._tokens])
        self.sentences: np.ndarray = _chain([shard["sentences"] for shard in shards])
        self.documents: np.ndarray = _chain([shard["documents"] for shard in shards])

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], split: str = "train", verify: Literal["size", "hash"] = "hash"
    ) -> "Corpus":
        """Open a split after checking that its files are those of the manifest, by size or by content."""
        directory = Path(directory)
        manifest = read_manifest(directory)
        if split not in manifest["splits"]:
            there = list(manifest["splits"])
            raise InputError(directory, f"no split {split!r}", f"it holds {', '.join(there)}", suggest(split, there))
        shards = [entry for entry in manifest["shards"] if entry["split"] == split]
        for entry in shards + manifest.get("files", []):
            _check(directory / entry["file"], entry, verify)
        return cls(directory, split, manifest)

    @property
    def tokenizer_fingerprint(self) -> str:
        return self.manifest["tokenizer"]["fingerprint"]

    @property
    def vocab(self) -> int:
        return self.manifest["tokenizer"]["size"]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.manifest)

    @property
    def counts(self) -> Counted:
        return Counted(**self.manifest["splits"][self.split])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        """The columns of many ranges, end to end, in the order given.

        One gather for all ranges; a range may cross from one shard into the next.
        """
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        lengths = ends - starts
        if len(starts) and (lengths.min() < 0 or starts.min() < 0 or ends.max() > len(self)):
            raise IndexError(f"ranges must lie within 0..{len(self)} and not run backwards")
        total = int(lengths.sum())
        positions = np.arange(total) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        filled = lengths > 0
        if not filled.any():
            return Columns(np.zeros(0, np.int32), np.zeros(0, bool))
        first = int(np.searchsorted(self._firsts, starts[filled].min(), "right")) - 1
        last = int(np.searchsorted(self._firsts, ends[filled].max(), "left")) - 1
        tokens, word_starts = np.empty(total, np.int32), np.empty(total, bool)
        units = None if self._units is None else np.empty(total, np.uint8)
        for shard in range(first, last + 1):
            begin, end = self._firsts[shard : shard + 2]
            here = slice(None) if first == last else np.flatnonzero((positions >= begin) & (positions < end))
            inside = positions[here] - begin
            tokens[here] = self._tokens[shard][inside]
            word_starts[here] = self._word_starts[shard][inside]
            if units is not None and self._units is not None:
                units[here] = self._units[shard][inside]
        return Columns(tokens, word_starts, units)

    def unigram(self) -> np.ndarray:
        """How often each token occurs, int64 [vocabulary]; counted when the shards were written."""
        return np.sum(self._counts, axis=0)


def _check(file: Path, entry: dict[str, Any], verify: str) -> None:
    if not file.is_file():
        raise _changed(file, "the file is gone")
    size = file.stat().st_size
    if size != entry["bytes"]:
        raise _changed(file, f"{size:,} bytes instead of {entry['bytes']:,}")
    if verify == "hash" and hash_file(file) != entry["sha256"]:
        raise _changed(file, "other content than the manifest's hash")


def _changed(file: Path, how: str) -> InputError:
    needed = f"the files of {file.parent} must be those that were prepared"
    return InputError(file, how, needed, "restore the directory from a copy or prepare the text again")


def _map(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file as read-only views of the file."""
    try:
        with file.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header = parse_json(stream.read(min(length, 100_000_000)), dict)
        data = np.memmap(file, np.uint8, "r", offset=8 + length)
        tensors = {}
        for name in ("tokens", "word_starts", "sentences", "documents", "counts", "units"):
            if name == "units" and name not in header:
                continue
            begin, end = header[name]["data_offsets"]
            # A plain view: np.memmap's own indexing is slow, and it keeps the file mapped as long as it lives.
            tensors[name] = np.asarray(data)[begin:end].view(TYPES[header[name]["dtype"]])
        return tensors
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise _changed(file, f"unreadable ({error})") from None


def _chain(borders: list[np.ndarray]) -> np.ndarray:
    """Border lists that each start at 0, one after the other."""
    if len(borders) == 1:
        return borders[0]
    firsts = np.cumsum([0] + [int(border[-1]) for border in borders])
    parts = [border[:-1] + first for border, first in zip(borders, firsts[:-1], strict=True)]
    return np.concatenate([*parts, firsts[-1:]]).astype(np.int64)
