"""The data of a compression in parts: what steps read, what they are chosen on, and what is reported of the result.

Which part an example belongs to is a hash of its text, so that it never moves, and a text that stands there twice is
in one part. Of a prepared directory steps read the training split, and the documents of the other one are divided.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.compress.data import Data
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Columns, ragged_arange
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tables import read_table, stream
from clozeworks.data.tables.table import Table
from clozeworks.exchange.bundle import Bundle
from clozeworks.inference.predict import match_columns

FEWEST = 10  # examples of a part
TEXTS = 50_000  # that are read of a file
JUDGED = 2000  # examples of a part that a model is judged by, at most
TOKENS = 200_000  # and tokens of prepared text
LEARN, CHOOSE = 0.5, 0.75  # where the parts end; without anything to choose, what is reported begins at the first


@dataclass(slots=True)
class Examples:
    """A part that a model is judged by: labelled rows, texts, or prepared text."""

    table: Table | None = None
    texts: Sequence[str] = ()
    prepared: "TakenText | None" = None

    def __len__(self) -> int:
        if self.table is not None:
            return len(self.table)
        return len(self.texts) if self.prepared is None else len(self.prepared.documents) - 1


@dataclass(slots=True)
class Division:
    """What steps read; what they are chosen on, where there is a choice; what is reported; what a user should hear."""

    learn: Data
    choose: Examples
    report: Examples
    notes: list[str] = field(default_factory=list)


class TakenText:
    """Some documents of a prepared text, in memory."""

    def __init__(self, corpus: Corpus, documents: Sequence[int]):
        self.directory = corpus.directory
        first, last = (corpus.documents[np.asarray(documents, np.int64) + after] for after in (0, 1))
        chosen = ragged_arange(first, last - first)
        begins, ends = corpus.sentences[chosen], corpus.sentences[chosen + 1]
        self.columns = corpus.take(begins, ends)
        self.sentences = np.concatenate([[0], np.cumsum(ends - begins)]).astype(np.int64)
        self.documents = np.concatenate([[0], np.cumsum(last - first)]).astype(np.int64)

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        tokens, word_starts, units = self.columns
        return Columns(tokens[at], word_starts[at], None if units is None else units[at])


def divide(
    bundle: Bundle, given: Any, columns: Mapping[str, str] | None = None, *, choosing: bool = False, seed: int = 0
) -> Division:
    """The parts of a file, of a prepared directory, or of rows or texts in memory, for the kind of model it is."""
    path = Path(given) if isinstance(given, str | os.PathLike) else None
    if bundle.recipe.task is not None:
        if path is not None and path.is_dir():
            needed = f"labelled rows show how well it does its task, {bundle.recipe.task.name}"
            raise InputError(given, "a directory", needed, "give a file of rows that it was not trained on")
        return _divide_rows(bundle, given, columns, choosing, seed)
    if path is not None and path.is_dir():
        return _divide_prepared(bundle, path, choosing, seed)
    return _divide_texts(bundle, given, columns, choosing, seed)


def _divide_rows(bundle: Bundle, given: Any, columns: Mapping[str, str] | None, choosing: bool, seed: int) -> Division:
    task = bundle.recipe.task
    assert task is not None
    read = read_table(given, match_columns(task), task.truth, dict(columns or {}), maybe=task.maybe)
    table = read.table
    keys = [json.dumps([row.get(name) for name in task.columns], default=str) for row in table.rows]
    learn, choose, report = _parts(table.name, "row", keys, choosing, seed)
    notes = [*read.notes, *_tell("rows", len(table), learn, choose, report)]
    judged = [Examples(table.some(part[:JUDGED])) for part in (choose, report)]
    return Division(Data(table=table.some(learn), seed=seed), judged[0], judged[1], notes)


def _divide_texts(bundle: Bundle, given: Any, columns: Mapping[str, str] | None, choosing: bool, seed: int) -> Division:
    if bundle.recipe.decoder is not None:
        needed = "it is judged by the held-out text of a prepared directory"
        raise InputError("--data", "a file, for a model with a decoder", needed, "give what prepare --pairs wrote")
    texts: list[str] = []
    name = str(given) if isinstance(given, str | os.PathLike) else "data"
    for table in stream(given, ("text",), dict(columns or {}), rows=4096):
        texts += [row["text"] for row in table.rows if row["text"].strip()]
        if len(texts) > TEXTS:
            break
    notes = [f"the first {TEXTS:,} texts are read"] if len(texts) > TEXTS else []
    texts = texts[:TEXTS]
    learn, choose, report = _parts(name, "text", texts, choosing, seed)
    some = [[texts[at] for at in part] for part in (learn, choose[:JUDGED], report[:JUDGED])]
    notes += _tell("texts", len(texts), learn, choose, report)
    return Division(Data(texts=some[0], seed=seed), Examples(texts=some[1]), Examples(texts=some[2]), notes)


def _divide_prepared(bundle: Bundle, directory: Path, choosing: bool, seed: int) -> Division:
    train, heldout = Corpus.open(directory, "train"), Corpus.open(directory, "heldout")
    if bundle.tokenizer is not None and bundle.tokenizer.fingerprint != train.tokenizer_fingerprint:
        given, needed = "another tokenizer than the model has", "token ids must keep their meaning"
        todo = "prepare the text again with --tokenizer set to the model's directory"
        raise InputError(directory, given, needed, todo)
    count = len(heldout.documents) - 1
    keys = [f"document {at}" for at in range(count)]
    _, first, second = _parts(str(directory), "held-out document", keys, True, seed, ends=(0.0, 0.5), fewest=2)
    judged = [_some_documents(heldout, part) for part in ((first, second) if choosing else ([], first + second))]
    tokens = [int(each.prepared.sentences[-1]) if each.prepared else 0 for each in judged]
    chosen = f", {tokens[0]:,} of them to choose steps on" if choosing else ""
    notes = [f"steps read the training text; {sum(tokens):,} held-out tokens are to judge by{chosen}"]
    return Division(Data(corpus=train, seed=seed), judged[0], judged[1], notes)


def _some_documents(corpus: Corpus, documents: Sequence[int]) -> Examples:
    """As many of them as `TOKENS` allow, one at least."""
    if not documents:
        return Examples()
    edges = corpus.sentences[corpus.documents]
    lengths = np.diff(edges)[np.asarray(documents)]
    many = max(1, int(np.searchsorted(np.cumsum(lengths), TOKENS)))
    return Examples(prepared=TakenText(corpus, sorted(documents[:many])))


def _parts(
    name: str,
    what: str,
    keys: Sequence[str],
    choosing: bool,
    seed: int,
    ends: tuple[float, float] = (LEARN, CHOOSE),
    fewest: int = FEWEST,
) -> tuple[list[int], list[int], list[int]]:
    """Which examples belong to each part, in an order that the hash gives: the first of a part are a sample of it."""
    places = [_place(key, seed) for key in keys]
    order = sorted(range(len(keys)), key=lambda at: (places[at], at))
    first, second = ends if choosing else (ends[0], ends[0])
    learn = [at for at in order if places[at] < first]
    choose = [at for at in order if first <= places[at] < second]
    report = [at for at in order if places[at] >= second]
    wanted = [learn] * bool(first) + [choose] * choosing + [report]
    if min(map(len, wanted)) < fewest:
        given = f"{len(keys):,} {what}{'' if len(keys) == 1 else 's'}"
        needed = f"{len(wanted)} parts of {fewest} are needed, to try steps on and to judge by"
        raise InputError(name, given, needed, f"give {4 * fewest * len(wanted)} or more")
    return learn, choose, report


def _place(text: str, seed: int) -> float:
    """Between 0 and 1, the same for the same text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, salt=str(seed).encode()[:16])
    return int.from_bytes(digest.digest(), "big") / 2**64


def _tell(what: str, count: int, learn: list[int], choose: list[int], report: list[int]) -> list[str]:
    chosen = f", {min(len(choose), JUDGED):,} to choose them by" if choose else ""
    shares = f"{len(learn):,} for the steps to read{chosen}, {min(len(report), JUDGED):,} to report on"
    return [f"{count:,} {what}: {shares}"]
