"""What is prepared: documents that can be read again for each pass, and what one look over them tells."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozeworks.data.documents import Counts, Document, Errors, list_files, read_documents
from clozeworks.data.sentences import cut, split_sentences
from clozeworks.errors import InputError

Progress = Callable[[str, int, int], None]  # stage ("survey", "tokenizer", "shards"), bytes done, bytes in all


class Reader:
    """The documents, again for each pass, telling the progress as they go by."""

    def __init__(self, source: Any, errors: Errors, name: str, stage: Path, progress: Progress | None):
        self._errors: Errors = errors
        self._field, self._progress = name, progress
        self.counts = Counts()
        self._files: list[Path] | None = None
        self._documents: Iterable[Document] = ()
        self._spool: Path | None = None
        if isinstance(source, str | os.PathLike):
            source = [source]
        if isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source):
            self._paths: Sequence[str | os.PathLike[str]] = source
            self._files = list_files(source)
            self._total = sum(file.stat().st_size for file in self._files)
            self.name = str(source[0])
        else:
            self.name = "documents"
            if iter(source) is source:  # it can be read only once, so it is kept beside the shards for a while
                self._spool = stage / ".documents"
                self._total = _spool(source, self._spool)
            else:
                self._documents = source
                self._total = sum(_size(document) for document in source)

    def __call__(self, stage: str) -> Iterator[Document]:
        self.counts = counts = Counts()
        if self._files is not None:
            documents = read_documents(self._paths, errors=self._errors, field=self._field, counts=counts)
        else:
            documents = self._counted(counts)
        for document in documents:
            yield document
            if self._progress:
                self._progress(stage, counts.bytes, self._total)
        if counts.documents == 0:
            raise InputError(self.name, "nothing", "at least one document is needed", "give it some text")
        if self._progress:
            self._progress(stage, self._total, self._total)

    def _counted(self, counts: Counts) -> Iterator[Document]:
        for document in self._documents if self._spool is None else _unspool(self._spool):
            counts.documents += document.part == 0
            counts.bytes += _size(document)
            yield document

    def sources(self) -> list[dict[str, Any]]:
        if self._files is not None:
            return [{"path": str(file), "bytes": file.stat().st_size} for file in self._files]
        return [{"path": "documents", "bytes": self._total}]

    def forget(self) -> None:
        if self._spool:
            self._spool.unlink()


def _size(document: Document) -> int:
    return len(document.text or text_of(document))


def _spool(documents: Iterable[Document], file: Path) -> int:
    total = 0
    with file.open("w", encoding="utf-8") as stream:
        for document in documents:
            total += _size(document)
            row = {name: getattr(document, name) for name in Document.__slots__}  # asdict copies every word
            stream.write(json.dumps(row) + "\n")
    return total


def _unspool(file: Path) -> Iterator[Document]:
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            yield Document(**json.loads(line))


def sentences_of(document: Document) -> list[str]:
    """The sentences of a document as it brings them, or as its text is split."""
    if document.words is not None:
        return ["".join(words) for words in document.words]
    if document.sentences is not None:
        return [piece for sentence in document.sentences for piece in cut(sentence)]
    return split_sentences(document.text)


def text_of(document: Document) -> str:
    """The text of a document that may bring its sentences only."""
    return document.text or "\n".join(document.sentences or sentences_of(document))


def document_hash(document: Document) -> int:
    """A number of 64 bits that depends on the text alone: it decides the split."""
    raw = text_of(document).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


@dataclass(slots=True)
class Survey:
    """The smallest and the largest hash: all it takes to promise that both splits get a document."""

    documents: int = 0
    lowest: int = 1 << 64
    highest: int = -1

    def border(self, share: float) -> int:
        """Documents whose hash lies below are held out."""
        if share == 0 or self.lowest >= self.highest:
            return 0
        return min(max(int(share * (1 << 64)), self.lowest + 1), self.highest)


def survey(reader: Reader) -> Survey:
    seen = Survey()
    for document in reader("survey"):
        if document.part == 0:
            seen.documents += 1
            number = document_hash(document)
            seen.lowest, seen.highest = min(seen.lowest, number), max(seen.highest, number)
    return seen
