"""Units of a corpus: stretches of documents that one worker turns into tokens, the same wherever and whenever it runs.

A unit depends on the text alone, and what becomes of it on the unit and the task alone. So a corpus can be made by
one process or by many, here or on other machines, and resume after a kill, and the bytes are always the same.
"""

import hashlib
import json
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clozeworks.core import atomic_io
from clozeworks.core.json_reader import parse_json
from clozeworks.data.text.documents import Document
from clozeworks.data.text.sentences import LONGEST, cut, split_sentences
from clozeworks.data.tokens.encode import Spans, Tokens, encode
from clozeworks.data.tokens.segmenters import Segmenter, start_segmentation
from clozeworks.data.tokens.tokenizer import Tokenizer

UNIT_CHARACTERS = 1_000_000  # a fraction of a second of work, a few megabytes on their way to a worker
BATCH_CHARACTERS = 100_000  # of sentences tokenised at once: `tokenizers` needs some hundred bytes a token meanwhile
UNKNOWNS = 1000  # different ones remembered of a unit
GAP = 100_000  # characters of white space that may stand between two sentences


Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Unit:
    """The documents, or parts of long ones, that a worker tokenizes at once."""

    number: int
    documents: list[Document]


@dataclass(frozen=True, slots=True)
class TokenizeTask:
    """What a worker has to know: small, and the same for every unit."""

    tokenizer: Tokenizer
    segmenter: str | Segmenter | None = None  # a name is looked up where the work is done
    pairs: bool = False  # documents are two sides; one with an empty side is left out

    def start(self) -> "UnitTokenizer":
        return UnitTokenizer(self)


@dataclass(slots=True)
class TokenizedUnit:
    """What became of a unit: `columns` as they are stored, what was counted, and what a segmenter complained of.

    tokens, word_starts, units (if annotated): one a token; lengths: tokens of each sentence; sizes, begins, keys: of
    each document or part of one, its sentences, whether it begins the document, and a hash of 128 bits of its text.
    """

    columns: Columns
    counts: dict[str, int] = field(default_factory=dict)
    unknowns: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def units(documents: Iterable[Document]) -> Iterator[Unit]:
    """Documents, or parts of long ones, in order, gathered until a unit is full."""
    number, held, size = 0, [], 0
    for document in documents:
        held.append(document)
        size += len(document.text) or sum(map(len, sentences_of(document)))
        if size >= UNIT_CHARACTERS:
            yield Unit(number, held)
            number, held, size = number + 1, [], 0
    if held:
        yield Unit(number, held)


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


def key_of(document: Document) -> tuple[int, int]:
    """128 bits that depend on the text alone: they decide the split, and show copies."""
    raw = hashlib.blake2b(text_of(document).strip().encode(errors="surrogatepass"), digest_size=16).digest()
    return int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")


@dataclass(slots=True)
class _Sentences:
    """Sentences on their way to the tokenizer, with the words and spans that are known of them."""

    texts: list[str] = field(default_factory=list)
    words: list[list[str] | None] = field(default_factory=list)
    spans: list[Spans | None] = field(default_factory=list)
    size: int = 0


class UnitTokenizer:
    """Turns units into columns; made once in each worker."""

    def __init__(self, task: TokenizeTask):
        self.task = task
        self.dtype = np.dtype("<u2") if task.tokenizer.size < 1 << 16 else np.dtype("<u4")
        self.segment = start_segmentation(task.segmenter)
        self.spaced = task.segmenter == "spaces"

    def __call__(self, unit: Unit) -> TokenizedUnit:
        parts: list[Tokens] = []
        counts: Counter[str] = Counter()
        unknowns: Counter[str] = Counter()
        complaints: list[str] = []
        sizes: list[int] = []
        waiting = _Sentences()
        for document in unit.documents:
            texts, words = self._split(document, counts, complaints)
            spans = spans_of(document, texts, counts) if document.phrases or document.entities else [None] * len(texts)
            sizes.append(len(texts))
            waiting.texts += texts
            waiting.words += words
            waiting.spans += spans
            waiting.size += sum(map(len, texts))
            if waiting.size > BATCH_CHARACTERS:
                parts.append(self._encode(waiting, unknowns, counts))
                waiting = _Sentences()
        parts.append(self._encode(waiting, unknowns, counts))
        columns = self._columns(parts, np.array(sizes, np.int64), unit, counts)
        return TokenizedUnit(columns, dict(counts), dict(unknowns.most_common(UNKNOWNS)), complaints)

    def _split(
        self, document: Document, counts: Counter[str], complaints: list[str]
    ) -> tuple[list[str], list[list[str] | None]]:
        """The sentences of a document, and the words of each where they are known."""
        if document.words is not None:
            counts["given"] += len(document.words)
            return sentences_of(document), list(document.words)
        sentences = list(document.sentences or ()) if self.task.pairs else sentences_of(document)
        if len(document.text) > LONGEST:
            counts["long_sentences_cut"] += len(sentences) - len(split_sentences(document.text, sys.maxsize))
        if self.segment is None:
            return sentences, [None] * len(sentences)
        words, problems = self.segment(sentences)
        for name, count in problems.counts.items():
            counts[f"segmenter {name}"] += count
        complaints += problems.messages[: 3 - len(complaints)]
        if self.spaced:
            joined = [None if known is None else "".join(known) for known in words]
            sentences = [known or text for known, text in zip(joined, sentences, strict=True)]
        return sentences, words

    def _encode(self, waiting: _Sentences, unknowns: Counter[str], counts: Counter[str]) -> Tokens:
        tokenizer = self.task.tokenizer
        words = waiting.words if any(known is not None for known in waiting.words) else None
        spans = waiting.spans if any(known is not None for known in waiting.spans) else None
        made = encode(tokenizer, waiting.texts, words, spans)
        counts["misaligned"] += made.misaligned
        if tokenizer.unk is not None:
            at = np.flatnonzero(made.tokens == tokenizer.unk)
            ends = np.cumsum(made.lengths)
            for number in np.unique(np.searchsorted(ends, at, side="right")).tolist():
                text = waiting.texts[number]
                encoding = tokenizer.encode([text])[0]
                for begin, end in encoding.offsets[encoding.ids == tokenizer.unk].tolist():
                    unknowns[text[begin:end][:40]] += 1
        return made

    def _columns(self, parts: list[Tokens], sizes: np.ndarray, unit: Unit, counts: Counter[str]) -> Columns:
        lengths = np.concatenate([part.lengths for part in parts])
        owner = np.repeat(np.arange(len(sizes)), sizes)
        columns = {
            "tokens": np.concatenate([part.tokens for part in parts]).astype(self.dtype),
            "word_starts": np.concatenate([part.word_starts for part in parts]),
        }
        if any(part.units is not None for part in parts):
            empty = [np.zeros(len(part.tokens), np.uint8) if part.units is None else part.units for part in parts]
            columns["units"] = np.concatenate(empty)
            counts["annotated_tokens"] += int(np.count_nonzero(columns["units"]))
        if self.task.pairs:
            bad = np.bincount(owner, lengths == 0, minlength=len(sizes)) > 0
            counts["empty_pairs"] += int(bad.sum())
            stay = ~bad[owner]
            columns = {name: column[np.repeat(stay, lengths)] for name, column in columns.items()}
            lengths = np.where(stay, lengths, 0)
        else:
            counts["empty_sentences"] += int((lengths == 0).sum())
        columns["lengths"] = lengths[lengths > 0].astype(np.int32)
        columns["sizes"] = np.bincount(owner[lengths > 0], minlength=len(sizes)).astype(np.int32)
        columns["begins"] = np.array([document.part == 0 for document in unit.documents], bool)
        columns["keys"] = np.array([key_of(document) for document in unit.documents], np.uint64).reshape(-1, 2)
        return columns


def spans_of(document: Document, sentences: Sequence[str], counts: Counter[str]) -> list[Spans | None]:
    """The annotated spans of a document as spans of its sentences; those that are in none of them are counted."""
    kinds = {"phrases": sorted(document.phrases), "entities": sorted(document.entities)}
    starts = {kind: [low for low, _ in spans] for kind, spans in kinds.items()}
    spans_in: list[Spans | None] = []
    at, placed = 0, 0
    for sentence in sentences:
        begin = document.text.find(sentence, at, at + len(sentence) + GAP)
        if begin < 0:  # the sentence is not as it stands in the text: its spaces were taken out
            spans_in.append(None)
            continue
        at = begin + len(sentence)
        inside = {}
        for kind, spans in kinds.items():
            first, last = bisect_left(starts[kind], begin), bisect_left(starts[kind], at)
            inside[kind] = [(low - begin, high - begin) for low, high in spans[first:last]]
            placed += last - first
        spans_in.append(Spans(**inside) if any(inside.values()) else None)
    counts["misaligned"] += len(document.phrases) + len(document.entities) - placed
    return spans_in


# ---- on disk


def write(file: Path, made: TokenizedUnit) -> None:
    """Store a unit."""
    rest = {"counts": made.counts, "unknowns": made.unknowns, "complaints": made.complaints}
    atomic_io.write_bytes(file, save(made.columns, {"made": json.dumps(rest, ensure_ascii=False)}))


def read(file: Path, names: Sequence[str] | None = None) -> TokenizedUnit | None:
    """A stored unit, or those columns of it; None when it is not there or not whole."""
    try:
        with safe_open(file, "numpy") as stored:
            columns = {name: stored.get_tensor(name) for name in stored.keys() if names is None or name in names}  # noqa: SIM118
            rest: dict[str, Any] = parse_json((stored.metadata() or {})["made"], dict)
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
    return TokenizedUnit(columns, **rest)
