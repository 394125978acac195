"""Pairs of sentences that were never prepared, as a text to make examples of."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.core.examples import Columns, ragged_arange
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.counts import Counts
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.tokens.tokenizer import Tokenizer

Pair = tuple[str, str]
SCORED = 2000  # held-out pairs of a prepared directory that are translated at most


class PairText:
    """A corpus in memory: documents of two sentences."""

    def __init__(self, tokenizer: Tokenizer, pairs: Sequence[Pair]):
        encoded = tokenizer.encode([side for pair in pairs for side in pair])
        self.tokens = np.concatenate([one.ids for one in encoded])
        self.word_starts = np.concatenate([one.word_starts for one in encoded])
        self.sentences = np.concatenate([[0], np.cumsum([len(one.ids) for one in encoded])]).astype(np.int64)
        self.documents = np.arange(0, len(encoded) + 1, 2)

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        return Columns(self.tokens[at], self.word_starts[at])


def choose_fields(file: Path, given: str | None) -> tuple[str, str]:
    """The fields of source and target: those given, or the two that the first row of JSON lines has."""
    names: list[str] = [name.strip() for name in given.split(",")] if given is not None else []
    if given is None and file.suffix in (".jsonl", ".ndjson"):
        with file.open(encoding="utf-8", errors="replace") as stream:
            first = next((line for line in stream if line.strip()), "")
        try:
            row = parse_json(first)
        except ValueError:
            row = None
        names = [str(name) for name in row] if isinstance(row, dict) else []
        names = names if len(names) == 2 else []
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        shown = given if given is not None else "not given"
        raise InputError("--pairs", shown, "two fields, source and target, are needed", "for example: --pairs en,de")
    return names[0], names[1]


def read_pairs(file: str | Path, fields: tuple[str, str]) -> list[Pair]:
    reader = Reader(str(file), Reading(pairs=fields), None)
    sides = (document.sentences or [] for document in reader.documents(Counts()))
    return [(each[0], each[1]) for each in sides]


def decode_pairs(text: Corpus, tokenizer: Tokenizer) -> list[Pair]:
    """The first held-out pairs, as far as tokens tell what they were."""
    if (np.diff(text.documents) != 2).any():
        todo = "prepare pairs with `clozeworks prepare pairs.jsonl --pairs en,de --out DIR`"
        raise InputError(text.directory, "text of one side", "documents of two sentences are needed", todo)
    many = 2 * min(len(text.documents) - 1, SCORED)
    taken = text.take(text.sentences[:many], text.sentences[1 : many + 1]).tokens
    parts = np.split(taken, np.asarray(text.sentences[1:many]) - text.sentences[0])
    written = [tokenizer.write(part.tolist()) for part in parts]
    return list(zip(written[::2], written[1::2], strict=True))
