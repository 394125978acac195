"""What tables of words that begin as something found have in common: rows of one length, kept beside the data."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from clozeworks.core import atomic_io
from clozeworks.core.errors import RecipeError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.words import WordsLayer


def need_table(where: str, name: str, model: Architecture) -> None:
    """Raise `RecipeError` for an initializer of a table of words, where a model has not one."""
    words = model.embed.words
    if words is not None:
        needed = f"{type(words).__name__} has no one table of words"
        raise RecipeError(where, name, needed, "use encoder.embed.words=None, or leave it out")


def put_rows(layer: WordsLayer, table: np.ndarray, deviation: float) -> int:
    """Put the rows that are not 0 where drawn ones stand, as long as these; returns how many there are."""
    there = torch.from_numpy(np.flatnonzero(table.any(1)))
    with torch.no_grad():
        layer.table.weight[there] = torch.from_numpy(table)[there] * deviation
    return len(there)


def keep_table(
    name: str,
    key: list[Any],
    corpora: Sequence[tuple[Corpus, float]],
    shape: tuple[int, int],
    make: Callable[[], np.ndarray],
) -> np.ndarray:
    """The table that was kept beside the first text under this name, key and texts, or a new one."""
    written = json.dumps([*key, shape[1], [(text.fingerprint, weight) for text, weight in corpora]])
    file = corpora[0][0].directory / f"{name}-{hashlib.sha256(written.encode()).hexdigest()[:16]}.safetensors"
    kept = _read(file, shape)
    if kept is not None:
        return kept
    table = make()
    try:
        with atomic_io.file(file) as new:
            save_file({"table": table}, new)
    except OSError:
        pass  # data that nobody may write to: made again next time
    return table


def standardise(vectors: np.ndarray) -> np.ndarray:
    """Columns with mean 0 over the tokens that occur, whose rows are then sqrt(width) long: entries of deviation 1."""
    occur = vectors.any(1)
    vectors[occur] -= vectors[occur].mean(0)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * np.sqrt(vectors.shape[1], dtype=np.float32) / np.where(norms > 0, norms, 1)


def _read(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """A table that was kept, if it is one."""
    try:
        table = load_file(file)["table"]
    except (OSError, SafetensorError, KeyError):
        return None
    return table if table.shape == shape and np.isfinite(table).all() else None
