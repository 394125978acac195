"""From text to a prepared directory: one pass to survey and train the tokenizer, one to tokenise and write shards."""

import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks import atomic
from clozeworks.data.documents import Document, Errors
from clozeworks.data.sentences import LONGEST, split_sentences
from clozeworks.data.shards import FORMAT, MANIFEST, SPLITS, Counted, ShardWriter, fingerprint, read_manifest
from clozeworks.data.source import Progress, Reader, Survey, document_hash, sentences_of, survey, text_of
from clozeworks.data.tokenizer import Tokenizer, Tokens
from clozeworks.errors import InputError

BATCH_CHARACTERS = 500_000  # of sentences tokenised at once
TRAINED = ("wordpiece", "bytes")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` wrote: the directory, the counts of each split, the whole manifest, and what to tell the user."""

    out: Path
    splits: dict[str, Counted]
    manifest: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.manifest)


def prepare(
    source: Sequence[str | os.PathLike[str]] | Iterable[Document],
    out: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | Tokenizer = "wordpiece",
    vocab: int = 8192,
    lang: str = "en",
    lowercase: bool = True,
    heldout: float = 0.02,
    errors: Errors = "strict",
    field: str = "text",
    shard_tokens: int = 50_000_000,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Prepare text files, directories, or documents for training; `out` appears whole or not at all.

    `tokenizer` is a kind to train (`wordpiece`, `bytes`), a path to load, or a Tokenizer. About `heldout` of the
    documents are kept for evaluation, chosen by a hash of their text: the choice never moves, and copies of one text
    go together.
    """
    if not 0 <= heldout < 1:
        raise InputError("heldout", heldout, "a share of the documents from 0 up to 1 is needed", "try 0.02")
    if shard_tokens < 1:
        raise InputError("shard_tokens", shard_tokens, "at least one token a shard is needed", f"try {50_000_000:,}")
    out = Path(out)
    _refuse(out, overwrite)
    with atomic.directory(out, overwrite) as stage:
        reader = Reader(source, errors, field, stage, progress)
        found = None
        if isinstance(tokenizer, Tokenizer):
            found = tokenizer
        elif str(tokenizer) not in TRAINED:
            found = Tokenizer.load(tokenizer)
        seen = survey(reader)
        if found is None:
            kind = str(tokenizer)
            found = Tokenizer.train(lambda: map(text_of, reader("tokenizer")), kind, vocab, lowercase, lang)
        border = seen.border(heldout)
        shards, dropped = _write(reader, found, stage, border, shard_tokens)
        if reader.counts.documents != seen.documents:
            raise InputError(reader.name, "changed while it was read", "text that stays as it is", "run it again")
        reader.forget()
        found.save(stage)
        splits = {name: _total(shards, name) for name in SPLITS}
        splits = {name: counted for name, counted in splits.items() if counted.documents}
        if "train" not in splits:
            raise InputError(reader.name, "no token in any document", "text is needed", "point at files with text")
        manifest = {
            "format": FORMAT,
            "tokenizer": {"fingerprint": found.fingerprint, "size": found.size, "specials": found.names},
            "splits": {name: asdict(counted) for name, counted in splits.items()},
            "shards": shards,
            "dropped": dropped,
            "unicode": {name: getattr(reader.counts, name) for name in ("replaced", "skipped", "nul")},
            "sources": reader.sources(),
            "settings": {
                "tokenizer": str(tokenizer) if not isinstance(tokenizer, Tokenizer) else "given",
                "vocab": vocab,
                "lang": lang,
                "lowercase": lowercase,
                "heldout": heldout,
                "errors": errors,
                "field": field,
                "shard_tokens": shard_tokens,
            },
            "versions": _versions(),
            "command": shlex.join(sys.argv),
        }
        notes = manifest["notes"] = _notes(manifest, seen, heldout, str(tokenizer) in TRAINED)
        atomic.write_json(stage / MANIFEST, manifest)
    return Prepared(out, splits, manifest, notes)


def _refuse(out: Path, overwrite: bool) -> None:
    """A directory that holds something other than prepared text is never touched."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    try:
        read_manifest(out)
    except InputError:
        given = "a directory with other content"
        raise InputError(out, given, "an empty or new directory is needed", "choose another --out") from None
    if not overwrite:
        todo = "choose another --out, or replace it with --overwrite"
        raise InputError(out, "it holds prepared text already", "nothing is replaced unasked", todo)


@dataclass(slots=True)
class _Piece:
    """A document, or a part of one, on its way to its split (an index of SPLITS)."""

    split: int
    begins: bool
    sentences: list[str]
    words: list[list[str]] | None


def _write(
    reader: Reader, tokenizer: Tokenizer, stage: Path, border: int, shard_tokens: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Tokenise every document into its split; the next batch is read while the last one is tokenised."""
    writers = [ShardWriter(stage, name, tokenizer.size, shard_tokens, tokenizer.unk) for name in SPLITS]
    dropped = {"empty_documents": 0, "empty_sentences": 0, "long_sentences_cut": 0}
    try:
        with ThreadPoolExecutor(1) as pool:
            pending = None
            for batch in _batches(reader("shards"), border, dropped):
                encoded = pool.submit(_encode, tokenizer, batch)
                if pending:
                    _add(pending[0], pending[1].result(), writers, dropped)
                pending = batch, encoded
            if pending:
                _add(pending[0], pending[1].result(), writers, dropped)
        entries = [entry for writer in writers for entry in writer.close()]
    finally:
        for writer in writers:
            writer.abort()
    dropped["empty_documents"] = reader.counts.documents - sum(entry["documents"] for entry in entries)
    return entries, dropped


def _batches(documents: Iterable[Document], border: int, dropped: dict[str, int]) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    size, split = 0, 0
    for document in documents:
        if document.part == 0:
            split = int(document_hash(document) < border)
        sentences = sentences_of(document)
        if len(document.text) > LONGEST:
            dropped["long_sentences_cut"] += len(sentences) - len(split_sentences(document.text, sys.maxsize))
        batch.append(_Piece(split, document.part == 0, sentences, document.words))
        size += sum(map(len, sentences))
        if size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encode(tokenizer: Tokenizer, batch: list[_Piece]) -> Tokens:
    sentences = [sentence for piece in batch for sentence in piece.sentences]
    if all(piece.words is None for piece in batch):
        return tokenizer.encode_flat(sentences)
    words = [words for piece in batch for words in (piece.words or [None] * len(piece.sentences))]
    return tokenizer.encode_flat(sentences, words)


def _add(batch: list[_Piece], encoded: Tokens, writers: list[ShardWriter], dropped: dict[str, int]) -> None:
    lengths = encoded.lengths
    ends = np.concatenate([[0], np.cumsum(lengths)])
    at = 0
    for piece in batch:
        if piece.begins:
            for writer in writers:
                writer.end_document()
        till = at + len(piece.sentences)
        own = lengths[at:till]
        filled = own[own > 0]
        dropped["empty_sentences"] += len(own) - len(filled)
        if len(filled):
            here = slice(ends[at], ends[till])
            writers[piece.split].add(encoded.tokens[here], encoded.word_starts[here], filled)
        at = till


def _total(shards: list[dict[str, Any]], split: str) -> Counted:
    names = list(asdict(Counted()))
    mine = [Counted(**{name: entry[name] for name in names}) for entry in shards if entry["split"] == split]
    return sum(mine, Counted())


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("clozeworks", "tokenizers", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            versions[name] = "unknown"
    return versions


def _notes(manifest: dict[str, Any], seen: Survey, heldout: float, trained: bool) -> list[str]:
    """What a user should hear about, in sentences."""
    notes = []
    settings, unicode, dropped = manifest["settings"], manifest["unicode"], manifest["dropped"]
    train, held = manifest["splits"]["train"], manifest["splits"].get("heldout")
    if held is None and heldout:
        one = "there is one document only" if seen.documents == 1 else "all documents are the same or empty"
        notes.append(f"no held-out split: {one}; put a blank line between documents")
    elif held and held["tokens"] > 3 * heldout * (held["tokens"] + train["tokens"]):
        share = held["tokens"] / (held["tokens"] + train["tokens"])
        notes.append(f"{share:.0%} of the tokens are held out instead of {heldout:.0%}: the documents are few and long")
    size = manifest["tokenizer"]["size"]
    if trained and size < settings["vocab"]:
        notes.append(f"the text gives {size:,} pieces, not {settings['vocab']:,}: the vocabulary is smaller than asked")
    unknown = train["unknown"] / train["tokens"]
    if unknown > 0.01:
        notes.append(f"{unknown:.1%} of the tokens are unknown to the tokenizer: does its language fit the text?")
    if unicode["replaced"]:
        notes.append(f"{unicode['replaced']:,} invalid UTF-8 sequences became U+FFFD")
    if unicode["skipped"]:
        notes.append(f"{unicode['skipped']:,} unreadable lines were left out")
    if unicode["nul"]:
        notes.append(f"{unicode['nul']:,} NUL characters were removed")
    if dropped["empty_documents"]:
        notes.append(f"{dropped['empty_documents']:,} documents gave no token")
    if dropped["long_sentences_cut"]:
        notes.append(f"stretches of more than {LONGEST:,} characters without a border were cut, nothing was lost")
    return notes
