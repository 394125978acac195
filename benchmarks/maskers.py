"""The sides of the masking benchmark: callables that make the next batch, ours and the peer's, from the same blocks."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import SETTING
from benchmarks.peer import library
from clozeworks.core import counter_rng
from clozeworks.core.examples import NOTHING, PHRASE_INSIDE, PHRASE_START, Columns, ExamplePlan, RaggedBatch, assemble
from clozeworks.corpus import documents
from clozeworks.data.batches.rows import Epoch, Row, Source, collate, read_ahead
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.objectives.mask import MaskNgrams, MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords
from clozeworks.objectives.mask.masking import Masking
from clozeworks.objectives.objective import Segments, Text

DATA = "data"
HELD = 1024  # examples that a side goes through again and again
MASKS: dict[str, Masking] = {
    "tokens": MaskTokens(),
    "whole words": MaskWholeWords(),
    "n-grams": MaskNgrams(),
    "spans": MaskSpans(),
    "phrases": MaskPhrases(),
}
Work = Callable[[], object]


@dataclass(slots=True)
class Blocks(Segments):
    """The text cut every `length` - 2 tokens, whatever stands there: full examples, as the peer's scripts make them."""

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        room = self.length - 2
        starts = np.arange(int(text.sentences[-1]) // room) * room
        return ExamplePlan(starts, starts + room, np.zeros(len(starts), np.int8), np.arange(len(starts) + 1))


class Phrased:
    """A corpus whose words are taken by threes as phrases: the embedded text has no annotation of its own."""

    def __init__(self, corpus: Corpus):
        self.corpus, self.sentences, self.documents = corpus, corpus.sentences, corpus.documents

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        taken = self.corpus.take(starts, ends)
        word = np.cumsum(taken.word_starts)
        units = np.where(taken.word_starts & (word % 6 == 0), PHRASE_START, 0)
        units[(word % 6 < 3) & (units == 0)] = PHRASE_INSIDE
        return taken._replace(units=units.astype(np.uint8))

    def unigram(self) -> np.ndarray:
        return self.corpus.unigram()


def make(folder: Path) -> dict[str, Any]:
    """Prepare the text; say what it is."""
    setting = json.loads((folder / SETTING).read_text())
    prepare(itertools.islice(documents("en"), setting["documents"]), folder / DATA, vocab=setting["vocab"], heldout=0)
    counts = Corpus.open(folder / DATA).counts
    return {"text": "embedded, en", "tokens": counts.tokens, "words": counts.words, "vocabulary": setting["vocab"]}


class Bench:
    """Every side for one example length and one batch size; each call of a side is the next batch of the text."""

    def __init__(self, folder: Path, length: int, size: int):
        self.size = size
        self.corpus = Corpus.open(folder / DATA)
        self.vocabulary = Tokenizer.load(folder / DATA).vocabulary()
        self.epochs = {name: self._epoch(mask, length) for name, mask in MASKS.items()}
        plan = self.epochs["tokens"].plan
        count = min(len(plan) // size, max(1, HELD // size))
        if not count:
            raise ValueError(f"the text has {len(plan)} examples of {length} tokens, a batch {size}")
        self.batches = list(counter_rng.permutation(len(plan), 7)[: count * size].reshape(count, size))
        transformers = library()
        self.peer = transformers.AutoTokenizer.from_pretrained(folder / DATA)
        self.collator = transformers.DataCollatorForLanguageModeling

    def _epoch(self, mask: Masking, length: int) -> Epoch:
        text = Phrased(self.corpus) if isinstance(mask, MaskPhrases) else self.corpus
        return Source(text, Blocks(length), mask, self.vocabulary, 0).epoch(0)

    def ours(self, name: str) -> dict[str, Work]:
        """`corrupt`: mask and label tokens that are in memory; `batch`: read, mask, and lay out as tensors."""
        epoch, mask = self.epochs[name], MASKS[name]
        vocabulary = epoch.source.counted
        given = [
            (
                assemble(epoch.plan, batch, epoch.source.text.take, vocabulary),
                counter_rng.fold(epoch.key, "corrupt", batch),
            )
            for batch in self.batches
        ]
        rows = self._rows(epoch)
        return {
            "corrupt": _next(lambda each: mask.corrupt(each[0], each[1], vocabulary), given),
            "batch": lambda: collate(next(rows)),
        }

    def _rows(self, epoch: Epoch) -> Iterator[list[Row]]:
        """The rows of batch after batch, without end, as the loader hands them to `collate`."""
        while True:
            rows = read_ahead(epoch, [index[None] for batch in self.batches for index in batch])
            yield from (rows[at : at + self.size] for at in range(0, len(rows), self.size))

    def theirs(self, name: str) -> dict[str, Work]:
        """`batch`: the peer's collator on a list of dicts; `corrupt`: its masking alone, on tensors that it has.

        Nothing where it has no such mask. Given input_ids alone (`batch, ids alone`) it finds the special tokens again,
        row by row; its documentation advises to bring `special_tokens_mask`, and whole words need `offset_mapping`.
        """
        if name == "tokens":
            collator, more = self.collator(self.peer, mlm_probability=0.15), ("special_tokens_mask",)
        elif name == "whole words":  # it cannot replace at random then
            words = {"whole_word_mask": True, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
            collator = self.collator(self.peer, mlm_probability=0.15, **words)
            more = ("special_tokens_mask", "offset_mapping")
        else:
            return {}
        rows = [self.rows_of(batch) for batch in self.batches]
        given = [[{key: row[key] for key in ("input_ids", *more)} for row in batch] for batch in rows]
        work = {"batch": _next(collator, given)}
        if name == "tokens":
            alone = [[{"input_ids": row["input_ids"]} for row in batch] for batch in rows]
            work["batch, ids alone"] = _next(collator, alone)
        tensors = [{key: torch.tensor([row[key] for row in batch]) for key in ("input_ids", *more)} for batch in rows]
        work["corrupt"] = _next(
            # It writes into the ids it is given: a clone stands for the copy that ours makes too.
            lambda each: collator.torch_mask_tokens(each["input_ids"].clone(), **{key: each[key] for key in more}),
            tensors,
        )
        return work

    def rows_of(self, batch: np.ndarray) -> list[dict[str, Any]]:
        """Examples as the peer's tokenizer would give them; gaps in the offsets tell it our words."""
        epoch = self.epochs["tokens"]
        ragged = assemble(epoch.plan, batch, epoch.source.text.take, self.vocabulary)
        rows = []
        for begin, end in itertools.pairwise(ragged.first.tolist()):
            special = ragged.special[begin:end]
            low = np.arange(end - begin) + np.cumsum(ragged.word_starts[begin:end])
            offsets = np.where(special[:, None], 0, np.stack([low, low + 1], 1))
            rows.append(
                {
                    "input_ids": ragged.tokens[begin:end].tolist(),
                    "special_tokens_mask": special.astype(int).tolist(),
                    "offset_mapping": [tuple(pair) for pair in offsets.tolist()],
                }
            )
        return rows

    def masked_share(self, name: str) -> dict[str, float]:
        """The share of tokens that each side masks in a pass over its batches."""
        shares = {}
        for side, work in (("ours", self.ours(name)), ("theirs", self.theirs(name))):
            if work:
                made: list[Any] = [work["corrupt"]() for _ in self.batches]
                labels = [np.asarray(each.labels if isinstance(each, RaggedBatch) else each[1]) for each in made]
                shares[side] = round(float(np.mean(np.concatenate(labels, None) != NOTHING)), 4)
        return shares


def _next(work: Callable[[Any], Any], given: list[Any]) -> Work:
    """Do it with the next one, round and round."""
    turn = itertools.cycle(given)
    return lambda: work(next(turn))
