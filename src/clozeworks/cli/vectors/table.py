"""Files of word vectors that commands read and write."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import JsonOptions, choice, integer
from clozeworks.cli.paths import existing

if TYPE_CHECKING:
    from rich.console import Console

    from clozeworks.vectors.table import Vectors


@dataclass(kw_only=True)
class TableOptions(JsonOptions):
    """How a file of vectors is read."""

    limit: int | None = integer("read the first N vectors of a file", otherwise="all")
    errors: str = choice("what to do with rows that cannot be read", "strict", "skip", default="strict")


def open_vectors(options: TableOptions, path: str) -> Vectors:
    from clozeworks.vectors.table import load_vectors

    return load_vectors(existing(path, "a file of vectors"), options.limit, errors=options.errors)  # pyright: ignore[reportArgumentType]


def note_left_out(console: Console, vectors: Vectors, out: str) -> None:
    """What a format has no place for."""
    from clozeworks.screen.console import note
    from clozeworks.vectors.formats import files

    if vectors.more and files.check_writable(out) != files.TENSORS:
        note(console, f"n-grams are kept in {files.TENSORS} alone: here words that were never met have no vector")


def example_word(vectors: Vectors) -> str:
    """A word to try: a frequent one that is not among the shortest."""
    some = vectors.words[:2000]
    long = [word for word in some if word.isalpha() and len(word) > (4 if word.isascii() else 1)]
    return shlex.quote((long or some)[0])
