"""Text files to words: the same readers, sentences, segmenters and engines that `prepare` has."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from clozeworks.data.records.counts import Counts
from clozeworks.data.shards.prepare import choose_engine, detect_language, name_segmenter
from clozeworks.data.shards.units import units
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.tokens.segmenters import Segmenter
from clozeworks.vectors.column import Folder
from clozeworks.vectors.phrases import Phrases, joined
from clozeworks.vectors.splitting import Splitting
from clozeworks.vectors.words import Gathering, Progress, Words, gathered


def read_words(
    source: Any,
    *,
    min_count: int = 1,
    most: int | None = None,
    lang: str | None = None,
    lowercase: bool = True,
    marks: bool = True,
    segmenter: str | Segmenter | None = None,
    reading: Reading | None = None,
    processes: int | None = 1,
    engine: Literal["local", "ray"] = "local",
    folder: Folder = None,
    progress: Progress | None = None,
) -> Words:
    """The words of a text: what `prepare` reads (paths, rows, Documents, a dataset), or lists of words.

    Chinese is cut by `segmenter` (jieba by default), other text at spaces and marks, lower-cased; with `spaces` any
    text at spaces alone. Lists of words are taken as they are. `folder` is where a large stream lies while it is used;
    by default where temporary files do.
    """
    if isinstance(source, Words):
        return source.kept(min_count, most, folder)
    source, listed = _peek(source)
    if listed:
        return gathered(source, min_count, most, folder)
    with tempfile.TemporaryDirectory(prefix="clozeworks-words-", dir=folder) as spool:
        reader = Reader(source, reading or Reading(), Path(spool) / "documents")
        lang = lang or detect_language(reader)
        hook = segmenter if callable(segmenter) else name_segmenter(segmenter, lang)
        splitting = Splitting(lowercase, marks, None if hook == "none" else hook)
        run = choose_engine(engine, processes, hook, reader.total)
        gathering = Gathering(folder)
        for part in run(splitting, units(_watched(reader, progress))):
            gathering.add(part)
        return gathering.finish(reader.name, min_count, most)


def read_vocabulary(
    source: Any,
    *,
    min_count: int = 5,
    max_words: int | None = None,
    phrases: Phrases | None = None,
    folder: Folder = None,
    **reading: Any,
) -> Words:
    """What vectors are trained on: the frequent words, `phrases` among them; `reading` are options of `read_words`."""
    if phrases is None:
        return read_words(source, min_count=min_count, most=max_words, folder=folder, **reading)
    return joined(read_words(source, folder=folder, **reading), phrases, folder).kept(min_count, max_words, folder)


def _peek(source: Any) -> tuple[Any, bool]:
    """What is given, whole again after a look at its first item, and whether it is lists of words."""
    if isinstance(source, str | os.PathLike) or hasattr(source, "column_names") or not isinstance(source, Iterable):
        return source, False
    once = iter(source) is source
    rest = iter(source)
    first = next(rest, None)
    return chain([first], rest) if once and first is not None else source, isinstance(first, list | tuple)


def _watched(reader: Reader, progress: Progress | None) -> Iterator[Document]:
    counts = Counts()
    for document in reader.documents(counts):
        yield document
        if progress:
            progress("words", min(counts.bytes, reader.total), reader.total)
    if progress:
        progress("words", reader.total, reader.total)
