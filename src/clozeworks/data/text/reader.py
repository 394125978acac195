"""The one way into text: files, standard input, rows, documents and datasets, read again for each pass."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.text.documents import Document, Reading
from clozeworks.data.text.files import TextFiles
from clozeworks.data.text.items import Items

__all__ = ["Reader", "Reading"]


class Reader:
    """Documents that can be read again for each pass.

    `source` is a path or a list of paths (files, directories, patterns such as `**/*.jsonl`, `-` for standard input);
    or an iterable of texts, rows or Documents, which a generator may give only once; or an object of the package
    `datasets`. A list of strings is a list of paths: texts come as rows, `{"text": ...}`, or from a generator.

    `spool` is a file that may be made to keep what can be read only once.
    """

    def __init__(self, source: Any, reading: Reading = Reading(), spool: Path | None = None):  # noqa: B008
        self.reading = reading
        if isinstance(source, str | os.PathLike):
            source = [source]
        if isinstance(source, list | tuple) and all(isinstance(item, str | os.PathLike) for item in source):
            self._source: TextFiles | Items = TextFiles(source, reading, spool)
        else:
            self._source = Items(source, reading, spool)
        self.name = self._source.name
        self.total = self._source.total

    def documents(self, counts: Counts | None = None) -> Iterator[Document]:
        """Every document in order, from the first again at each call; `counts` grows with them."""
        counts = Counts() if counts is None else counts
        yield from self._source.documents(counts)
        if counts.documents == 0:
            raise InputError(self.name, "no document in it", "at least one document is needed", "give it some text")

    def identity(self) -> list[dict[str, Any]] | None:
        """What decides that it is the same text next time; None where that cannot be known."""
        return self._source.identity()

    def sources(self) -> list[dict[str, Any]]:
        """Where the text came from, for the manifest."""
        return self._source.sources()
