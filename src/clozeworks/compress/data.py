"""What a step of compression may read: texts, prepared text, labelled rows; and batches of them with their losses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Columns, ragged_arange
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.data.batches.labelled import make_batch, order
from clozeworks.data.batches.rows import Text
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tables.table import Table
from clozeworks.data.text.sentences import split_sentences
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate import heldout
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.char_vocab import collect_texts
from clozeworks.model import Model
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.recipe import Recipe

LENGTH = 128  # of an example, where a model does not say how it was pretrained
ROWS = 32  # of a table in one batch


@dataclass(slots=True)
class Data:
    """Texts without labels, prepared text (in tokens of whatever tokenizer), labelled rows of the model's task.

    Steps that ask for gradients read about `tokens` tokens of them, the same for the same `seed`. `teacher` is the
    model before all steps, for those that learn from it.
    """

    texts: Sequence[str] = ()
    corpus: Corpus | None = None
    table: Table | None = None
    tokens: int = 65_536
    seed: int = 0
    teacher: Bundle | None = None

    def all_texts(self, recipe: Recipe) -> Iterator[str]:
        """Every text, and whatever the rows hold that the model's task reads or writes."""
        yield from self.texts
        if self.table is not None and recipe.task is not None:
            columns = [column for each in (*recipe.task.columns, *recipe.task.truth) for column in each.split("|")]
            yield from collect_texts(self.table.rows, columns)

    def batches(self, bundle: Bundle) -> Iterator[Batch]:
        """Batches as the model was trained on them: labelled rows for a task, otherwise examples of its objective."""
        recipe, tokenizer = bundle.recipe, bundle.tokenizer
        if tokenizer is None:
            needed, todo = "what it reads is text", "put tokenizer.json beside it"
            raise InputError(recipe.name, "a model without a tokenizer", needed, todo)
        if recipe.task is not None and self.table is not None:
            yield from self._labelled(recipe, tokenizer)
        else:
            yield from self._unlabelled(recipe, tokenizer)

    def _labelled(self, recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Batch]:
        assert recipe.task is not None
        assert self.table is not None
        labelled, left = recipe.task.examples(self.table, tokenizer), self.tokens
        units = order(len(labelled), self.seed, 0)
        for begin in range(0, len(units), ROWS):
            for batch in make_batch(labelled, units[begin : begin + ROWS], recipe.reading, tokenizer.filler):
                yield batch
                left -= batch.real
            if left <= 0:
                return

    def _unlabelled(self, recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Batch]:
        objective = recipe.objective
        if recipe.task is not None or not objective.losses:
            if recipe.decoder is not None:
                needed = "what it writes is read from a source"
                raise InputError("data", f"text alone for {recipe.name}", needed, "give labelled rows")
            one_way = objective.corruption if recipe.reading == "causal" else None
            objective = Objective(FullSentences(length=min(LENGTH, recipe.length)), one_way, ())
        text = self._text(tokenizer)
        size = min(self.tokens, 4096)
        yield from heldout.batches(text, objective, tokenizer.vocabulary(), self.seed, size, self.tokens)

    def unigram(self, tokenizer: Tokenizer) -> np.ndarray:
        """How often the prepared text has each token, int64 [vocabulary]."""
        return (
            np.zeros(tokenizer.size, np.int64)
            if self.corpus is None
            else self._prepared(self.corpus, tokenizer).unigram()
        )

    def _prepared(self, corpus: Corpus, tokenizer: Tokenizer) -> "Corpus | Renumbered":
        return corpus if corpus.tokenizer_fingerprint == tokenizer.fingerprint else Renumbered(corpus, tokenizer)

    def _text(self, tokenizer: Tokenizer) -> Text:
        if self.corpus is not None:
            return self._prepared(self.corpus, tokenizer)
        if not any(text.strip() for text in self.texts):
            needed = "gradients are those of a loss on text or labelled rows"
            raise InputError("data", "nothing to read", needed, "give some, or use magnitude")
        return TokenizedTexts(self.texts, tokenizer, self.tokens)


class TokenizedTexts:
    """Texts in memory as a prepared corpus would hold them; no more than is asked for is read."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, tokens: int):
        lengths, documents, parts, total = list[int](), list[int](), list[tuple[np.ndarray, np.ndarray]](), 0
        for text in texts:
            encodings = [each for each in tokenizer.encode(split_sentences(text)) if len(each.ids)]
            if encodings:
                documents.append(len(encodings))
                lengths += [len(each.ids) for each in encodings]
                parts += [(each.ids, each.word_starts) for each in encodings]
                total += sum(len(each.ids) for each in encodings)
            if total > 2 * tokens:  # of which packing leaves some out
                break
        self.sentences = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.documents = np.concatenate([[0], np.cumsum(documents)]).astype(np.int64)
        self._columns = Columns(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self._size = tokenizer.size

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        return Columns(self._columns.tokens[at], self._columns.word_starts[at])

    def unigram(self) -> np.ndarray:
        return np.bincount(self._columns.tokens, minlength=self._size)


class Renumbered:
    """Prepared text under another tokenizer that has the same tokens with other ids; one that it lacks is unknown."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer):
        self.corpus, self.tokenizer = corpus, tokenizer
        self.sentences, self.documents = corpus.sentences, corpus.documents

    @cached_property
    def ids(self) -> np.ndarray:
        """The id of each token of the prepared text."""
        old, unknown = Tokenizer.load(self.corpus.directory), self.tokenizer.need("unk")
        known = (self.tokenizer.id(old.token(index)) for index in range(old.size))
        return np.array([unknown if index is None else index for index in known], np.int32)

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        columns = self.corpus.take(starts, ends)
        return columns._replace(tokens=self.ids[columns.tokens])

    def unigram(self) -> np.ndarray:
        return np.bincount(self.ids, self.corpus.unigram(), self.tokenizer.size).astype(np.int64)


def losses(model: Model, batches: Iterator[Batch], seed: int = 0) -> Iterator[tuple[Tensor, int]]:
    """The mean loss of each batch, with its graph and nothing dropped, and how many examples it has.

    A model without a loss of its own has r . v for it, where v is the mean vector of an example and r is N(0, 1): the
    expected size of a gradient of this is how much v itself changes.
    """
    device, memory = next(model.parameters()).device, SegmentMemory()
    generator = torch.Generator().manual_seed(seed)
    for batch in batches:
        batch = memory.give(batch.to(device))
        computed = model.computed(batch)
        if not computed:
            yield _projected(model, batch, generator), len(batch.firsts)
            continue
        output = model(batch)
        memory.take(batch, output.hidden.memory)
        counts = model.count(batch)
        terms = [each.weight * output.losses[each.name] / max(each.divisor(counts[each.name]), 1) for each in computed]
        yield torch.stack(terms).sum(), len(batch.firsts)


def _projected(model: Model, batch: Batch, generator: torch.Generator) -> Tensor:
    last = model.read(batch, ()).last
    document = batch.token_info.document
    drawn = torch.randn(int(document.max()) + 1, last.shape[-1], generator=generator).to(last.device)
    lengths = torch.bincount(document[document >= 0])
    real = document >= 0
    return ((last * drawn[document.clamp(min=0)]).sum(-1) / lengths[document.clamp(min=0)])[real].sum() / len(
        batch.firsts
    )
