"""From text to a prepared directory: train a tokenizer, turn units of text into tokens, merge them into shards.

Memory stays bounded whatever the corpus: text passes in units of a million characters, a tokenizer is trained on at
most SAMPLE bytes, and what has to be known of every document (a hash) lies on disk.
"""

import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from dataclasses import field as dataclass_field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from clozeworks.core import atomic_io, checksummed_json
from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError, suggest
from clozeworks.data.records.counts import Counts, Errors
from clozeworks.data.shards import engines, merge, units
from clozeworks.data.shards.corpus import FORMAT, MANIFEST, SPLITS, Counted, describe_split, fingerprint, read_manifest
from clozeworks.data.shards.notes import notes_of
from clozeworks.data.shards.work import WorkDirectory, open_work, remove_finished
from clozeworks.data.shards.writer import ShardWriter
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.tokens.files import CONFIG, FILE
from clozeworks.data.tokens.segmenters import Segmenter, portable
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.training import KINDS

SAMPLE = 200_000_000  # bytes of text that a tokenizer is trained on at most
LARGE = 4_000_000  # bytes of text from which starting processes pays off
PEEK = 200_000  # characters that decide the language
ENGINES = ("local", "ray")

Progress = Any  # Callable[[str, int, int], None]: stage ("tokenizer", "units", "shards"), done, in all


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` wrote: the directory, the counts of each split, the whole manifest, and notes for the user."""

    out: Path
    splits: dict[str, Counted]
    manifest: dict[str, Any]
    notes: list[str] = dataclass_field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """Of the content: the same for the same text, prepared in the same way."""
        return fingerprint(self.manifest)


def prepare(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Iterable[Document | str | dict[str, Any]],
    out: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | Tokenizer = "wordpiece",
    vocab: int = 8192,
    lang: Literal["en", "zh"] | str | None = None,
    lowercase: bool = True,
    segmenter: str | Segmenter | None = None,
    heldout: float = 0.02,
    dedupe: bool = False,
    field: str = "text",
    pairs: tuple[str, str] | None = None,
    encoding: str = "utf-8",
    errors: Errors = "strict",
    unicode: Literal["none", "nfc", "nfkc"] = "none",
    unwrap: bool = False,
    processes: int | None = 1,
    engine: Literal["local", "ray"] = "local",
    shard_tokens: int = 50_000_000,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Prepare text files, directories, globs, standard input (`-`), an iterator or a `datasets` object for training.

    `out` appears whole or not at all; a killed preparation resumes when the same call is made again, and ends with the
    same bytes. `tokenizer` is a kind to train, a path to load, or a Tokenizer. `segmenter` finds Chinese words: a name
    (`jieba`, `spaces`, `none`, `file.py:function`) or any function from a sentence to its words; by default jieba for
    Chinese. About `heldout` of the documents are kept for evaluation, chosen by a hash of their text: the choice never
    moves, and copies of one text go together. `pairs` names the two fields of two-sided text. With several `processes`
    (None: as many as pay off) call it under `if __name__ == "__main__":`, as for every pool of Python's.
    """
    _check(out, vocab, heldout, shard_tokens, engine)
    out = Path(out)
    _refuse(out, overwrite)
    reading = Reading(field=field, pairs=pairs, encoding=encoding, errors=errors, unicode=unicode, unwrap=unwrap)
    used = _load_given(tokenizer)
    with open_work(out) as work:
        reader = Reader(source, reading, work.spool)
        lang = lang or detect_language(reader)
        settings = {
            "tokenizer": "given" if isinstance(tokenizer, Tokenizer) else str(tokenizer),
            "vocab": vocab,
            "lang": lang,
            "lowercase": lowercase,
            "segmenter": name_segmenter(segmenter, lang),
            "heldout": heldout,
            "dedupe": dedupe,
            **asdict(reading) | {"pairs": None if pairs is None else list(pairs)},
            "shard_tokens": shard_tokens,
        }
        work.claim(_identity(reader, settings, used))
        job = _Job(reader, settings, work, progress)
        words = segmenter if callable(segmenter) else settings["segmenter"]
        run = choose_engine(engine, processes, words, reader.total)
        return job.run(out, used, words, run, overwrite)


@dataclass(slots=True)
class _Job:
    """The stages of a preparation, once it is known what is to be done, and where."""

    reader: Reader
    settings: dict[str, Any]
    work: WorkDirectory
    progress: Progress | None
    counts: Counts = dataclass_field(default_factory=Counts)

    def run(
        self, out: Path, tokenizer: Tokenizer | None, words: str | Segmenter, engine: engines.Engine, overwrite: bool
    ) -> Prepared:
        """Tokenizer, tokens, merged units, shards and manifest."""
        tokenizer = tokenizer or self.work.load_tokenizer() or self._train_tokenizer()
        files = self._tokenize(tokenizer, words, engine)
        with atomic_io.directory(out, overwrite) as stage:
            table = merge.Table(self.work.path / "table", files)
            copies = table.drop_copies() if self.settings["dedupe"] else 0
            writers = self._write_shards(table, files, stage, tokenizer)
            manifest = self._describe(table, copies, writers, tokenizer)
            manifest["notes"] = notes_of(manifest, self.settings["tokenizer"] in KINDS)
            tokenizer.save(stage)
            manifest["files"] = [describe_split(stage / name) for name in (FILE, CONFIG)]
            manifest = checksummed_json.add_checksum(manifest)
            atomic_io.write_json(stage / MANIFEST, manifest)
        splits = {name: Counted(**counted) for name, counted in manifest["splits"].items()}
        return Prepared(out, splits, manifest, manifest["notes"])

    def _train_tokenizer(self) -> Tokenizer:
        """Train on the text, or on documents of it that a hash chooses where it is larger than SAMPLE."""
        share = min(1.0, SAMPLE / max(self.reader.total, 1))

        def read_texts() -> Iterator[str]:
            chosen = True
            for document in self._read("tokenizer", Counts()):
                if document.part == 0 and share < 1:
                    chosen = units.key_of(document)[1] < share * (1 << 64)
                if chosen:
                    yield units.text_of(document)

        kind, vocab, lowercase, lang = (self.settings[name] for name in ("tokenizer", "vocab", "lowercase", "lang"))
        trained = Tokenizer.train(read_texts, kind, vocab, lowercase, lang)
        self.work.save_tokenizer(trained)
        return trained

    def _tokenize(self, tokenizer: Tokenizer, words: str | Segmenter, engine: engines.Engine) -> list[Path]:
        """The files of the units, in order."""
        pairs = self.settings["pairs"] is not None
        task = units.TokenizeTask(tokenizer, None if words == "none" else words, pairs)
        return self.work.tokenize(task, units.units(self._read("units", self.counts)), engine)

    def _read(self, stage: str, counts: Counts) -> Iterator[Document]:
        """Every document, with reports of how far reading is."""
        total = self.reader.total
        for document in self.reader.documents(counts):
            yield document
            if self.progress:
                self.progress(stage, min(counts.bytes, total), total)
        if self.progress:
            self.progress(stage, total, total)

    def _write_shards(
        self, table: merge.Table, files: list[Path], stage: Path, tokenizer: Tokenizer
    ) -> list[ShardWriter]:
        """A writer for each split, closed."""
        annotated, size = table.totals.counts["annotated_tokens"] > 0, self.settings["shard_tokens"]
        writers = [ShardWriter(stage, name, tokenizer.size, size, tokenizer.unk, annotated) for name in SPLITS]
        try:
            for done in merge.write_shards(table, files, writers, table.border(self.settings["heldout"])):
                if self.progress:
                    self.progress("shards", done, len(files))
            for writer in writers:
                writer.close()
        finally:
            for writer in writers:
                writer.abort()
        return writers

    def _describe(
        self, table: merge.Table, copies: int, writers: list[ShardWriter], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        """The manifest, but for its notes, its files and its checksum."""
        shards = [entry for writer in writers for entry in writer.entries]
        splits = {name: _total(shards, name) for name in SPLITS}
        splits = {name: counted for name, counted in splits.items() if counted.documents}
        if "train" not in splits:
            raise InputError(self.reader.name, "no token in any document", "text is needed", "point at files with text")
        counts, settings, totals = self.counts, self.settings, table.totals
        dropped = {
            "empty_rows": 0 if settings["pairs"] else counts.empty_rows,
            "empty_documents": table.empty() - totals.counts["empty_pairs"],
            "empty_sentences": totals.counts["empty_sentences"],
            "empty_pairs": totals.counts["empty_pairs"] + (counts.empty_rows if settings["pairs"] else 0),
            "copies": copies,
            "long_sentences_cut": totals.counts["long_sentences_cut"],
        }
        words = {name: totals.counts[name] for name in ("given", "misaligned")}
        words |= {name: count for name, count in sorted(totals.counts.items()) if name.startswith("segmenter")}
        return {
            "format": FORMAT,
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "size": tokenizer.size, "specials": tokenizer.names},
            "splits": {name: asdict(counted) for name, counted in splits.items()},
            "shards": shards,
            "unicode": {name: getattr(counts, name) for name in ("replaced", "skipped", "nul")},
            "read": {name: value for name, value in counts.as_dict().items() if value},
            "dropped": dropped,
            "words": words | ({"complaints": totals.complaints} if totals.complaints else {}),
            "unknowns": totals.unknowns.most_common(10),
            "lengths": {
                "documents": _histogram(sum(writer.document_lengths for writer in writers)),
                "sentences": _histogram(sum(writer.sentence_lengths for writer in writers)),
            },
            "sources": self.reader.sources(),
            "settings": settings,
            "versions": _versions(),
            "command": shlex.join(sys.argv),
        }


def detect_language(reader: Reader) -> str:
    """Chinese if a third of the letters at the beginning are, English otherwise: it decides how words are found."""
    seen = han = 0
    for document in reader.documents(Counts()):
        letters = [character for character in units.text_of(document)[:PEEK] if character.isalpha()]
        seen += len(letters)
        han += sum(map(is_han, letters))
        if seen > PEEK:
            break
    return "zh" if 3 * han > seen else "en"


def _load_given(tokenizer: str | os.PathLike[str] | Tokenizer) -> Tokenizer | None:
    """The tokenizer to take; None if one is to be trained."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    return None if str(tokenizer) in KINDS else Tokenizer.load(tokenizer)


def name_segmenter(segmenter: str | Segmenter | None, lang: str) -> str:
    """What the manifest calls it."""
    if segmenter is None:
        return "jieba" if lang == "zh" and find_spec("jieba") else "none"
    return segmenter if isinstance(segmenter, str) else getattr(segmenter, "__qualname__", repr(segmenter))


def choose_engine(engine: str, count: int | None, hook: str | Segmenter, total: int) -> engines.Engine:
    """Where units are made: as was asked for, or as pays off for a text of so many bytes."""
    if engine == "ray":
        return engines.use_ray()
    if count is None:  # `tokenizers` has threads of its own; a segmenter is Python, and many cores want more readers
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        count = cores if total > LARGE and (hook != "none" or cores > 4) else 1
    if count < 1:
        raise InputError("processes", count, "1 or more is needed", "leave it out")
    return engines.run_here if count == 1 or (callable(hook) and not portable(hook)) else engines.use_processes(count)


def _identity(reader: Reader, settings: dict[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """All that decides the bytes; None if nobody can know that the text is the same next time."""
    files = reader.identity()
    if files is None:
        return None
    given = None if tokenizer is None else tokenizer.fingerprint
    return {
        "format": FORMAT,
        "unit": units.UNIT_CHARACTERS,
        "files": files,
        "settings": settings,
        "tokenizer": given,
        "versions": _versions(),
    }


def _check(out: Any, vocab: Any, heldout: Any, shard_tokens: Any, engine: str) -> None:
    if not isinstance(out, str | os.PathLike) or not os.fspath(out):
        raise InputError("out", repr(out), "the path of a directory is needed", 'for example "data"')
    if isinstance(vocab, bool) or not isinstance(vocab, int):
        raise InputError("vocab", repr(vocab), "a whole number is needed", f"try {8192:,}")
    if not isinstance(heldout, int | float) or not 0 <= heldout < 1:
        raise InputError("heldout", heldout, "a share of the documents from 0 up to 1 is needed", "try 0.02")
    if not isinstance(shard_tokens, int) or shard_tokens < 1:
        raise InputError("shard_tokens", shard_tokens, "at least one token a shard is needed", f"try {50_000_000:,}")
    if engine not in ENGINES:
        raise InputError("engine", engine, "local or ray is needed", suggest(engine, ENGINES))


def _refuse(out: Path, overwrite: bool) -> None:
    """A directory that holds something other than prepared text is never touched."""
    try:
        there = os.listdir(out)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(out, error.strerror, "a directory that can be written is needed", "choose another") from error
    if not there:
        return
    try:
        read_manifest(out)
    except InputError as error:
        if "format" in str(error) and overwrite:
            return
        given = "a directory with other content"
        raise InputError(out, given, "an empty or new directory is needed", "choose another --out") from None
    if not overwrite:
        remove_finished(out)
        todo = "choose another --out, or replace it with --overwrite"
        raise InputError(out, "it holds prepared text already", "nothing is replaced unasked", todo)


def _histogram(counts: Any) -> list[list[int]]:
    """[least, most, how many] for tokens in powers of two."""
    return [[1 << (bits - 1), (1 << bits) - 1, int(count)] for bits, count in enumerate(counts) if bits and count]


def _total(shards: list[dict[str, Any]], split: str) -> Counted:
    mine = [entry for entry in shards if entry["split"] == split]
    return Counted(**{name: sum(entry[name] for entry in mine) for name in asdict(Counted())})


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("clozeworks", "tokenizers", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            versions[name] = "unknown"
    return versions
