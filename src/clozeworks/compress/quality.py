"""How good a compressed model still is, against the model that it was made of, on the same examples.

    task       the task's own metric on labelled rows
    vectors    of an encoder: Spearman's correlation of the similarities of pairs of texts with those of the original,
               and the cosine of each vector with the original's
    loss       of a model that predicts tokens: its mean loss on held-out text, under the same masks

Each says what share of the original's quality is kept (`retained`; for a loss, the original's divided by it), and the
difference with its paired 95 % interval.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clozeworks.compress.data import TokenizedTexts
from clozeworks.compress.division import TOKENS, Examples, TakenText
from clozeworks.core.errors import InputError
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.against import RowLosses, renumber, row_losses, token_ids, token_losses, unit_batches
from clozeworks.inference.answers import predict_records
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.metrics.scores import spearman
from clozeworks.metrics.statistics import Difference, mean_difference, metric_differences
from clozeworks.tasks.task import Answers, Task

WORK = 2048  # tokens that are timed together, about
SHORT = 16  # tokens of the one short text, about
SAMPLE = 512  # texts of which those to be timed are taken


@dataclass(frozen=True, slots=True)
class Quality:
    """A metric of the model and of the original, what share of it is kept, and the difference."""

    metric: str
    value: float
    original: float
    retained: float
    difference: Difference
    more: dict[str, float] = field(default_factory=dict)  # other figures by name
    lower: bool = False  # whether less of it is better


@dataclass(frozen=True, slots=True)
class Work:
    """What is timed: many examples and a short one, and how many tokens the original makes of the many."""

    many: Callable[[TextEncoder], object]
    one: Callable[[TextEncoder], object]
    tokens: int
    short: Any  # the short example: a text, or a row


class Judge(ABC):
    """Judges models by some examples; what the original gave is kept."""

    metric: str

    def __init__(self, original: TextEncoder):
        if original.tokenizer is None:
            needed, todo = "what it is judged by is text", "put tokenizer.json beside it"
            raise InputError(original.recipe.name, "a model without a tokenizer", needed, todo)
        self.tokenizer: Tokenizer = original.tokenizer

    @abstractmethod
    def judge(self, encoder: TextEncoder) -> Quality:
        """How good a model is against the original."""

    @abstractmethod
    def work(self) -> Work:
        """What its speed is measured by."""


class TaskJudge(Judge):
    """By the metric of a task, on labelled rows."""

    def __init__(self, original: TextEncoder, table: Table, seed: int = 0):
        super().__init__(original)
        assert original.recipe.task is not None
        self.task: Task = original.recipe.task.measured(table)
        self.metric, self.table, self.seed = self.task.metric, table, seed
        self.theirs = self.answers(original, table)

    def answers(self, encoder: TextEncoder, table: Table) -> Answers:
        task, tokenizer = encoder.recipe.task, encoder.tokenizer
        assert task is not None
        assert tokenizer is not None
        return predict_records(encoder.model, task, table, tokenizer, encoder.kind, truth=True)[0]

    def judge(self, encoder: TextEncoder) -> Quality:
        ours = self.answers(encoder, self.table)
        one, other = (self.task.score(each, self.table) for each in (ours, self.theirs))
        value, original = one[self.metric], other[self.metric]
        more = {name: each for name, each in one.items() if name != self.metric}
        paired = self.difference(ours, value, original)
        return Quality(self.metric, value, original, _share(value, original), paired, more)

    def difference(self, ours: Answers, value: float, original: float) -> Difference:
        """Of a share of right rows quickly; of any other metric by computing it again for every sample."""
        right, other = (self.task.badness(each, self.table) == 0 for each in (ours, self.theirs))
        if np.allclose((right.mean(), other.mean()), (value, original)):
            return mean_difference(right, other, seed=self.seed)

        def scorer(answers: Answers) -> Callable[[np.ndarray], dict[str, float]]:
            def score(rows: np.ndarray) -> dict[str, float]:
                some = self.task.score([answers[row] for row in rows], self.table.some(rows.tolist()))
                return {self.metric: some[self.metric]}

            return score

        return metric_differences(scorer(ours), scorer(self.theirs), len(self.table), seed=self.seed)[self.metric]

    def work(self) -> Work:
        texts = [" ".join(map(str, (row.get(name) for name in self.task.columns))) for row in self.table.rows[:SAMPLE]]
        many, short, tokens = _choose(self.tokenizer, texts)
        rows, row = self.table.some(many), self.table.some([short])
        columns = [name for name in self.task.columns if name in row.rows[0]]
        shown = {name: row.rows[0][name] for name in columns}
        return Work(lambda e: self._predict(e, rows), lambda e: self._predict(e, row), tokens, shown)

    def _predict(self, encoder: TextEncoder, table: Table) -> object:
        task, tokenizer = encoder.recipe.task, encoder.tokenizer
        assert task is not None
        assert tokenizer is not None
        return predict_records(encoder.model, task, table, tokenizer, encoder.kind)


class VectorJudge(Judge):
    """By the vectors of texts. Text i is compared with text i + 1: n pairs, each text in two of them."""

    metric = "rank_correlation"

    def __init__(self, original: TextEncoder, texts: Sequence[str], seed: int = 0):
        super().__init__(original)
        self.texts, self.seed = list(texts), seed
        self.theirs = _normalized(original.encode(self.texts))
        self.similar = _neighbours(self.theirs)

    def judge(self, encoder: TextEncoder) -> Quality:
        """By the order of similarities, with the cosine of each vector and the original's beside it."""
        ours = encoder.encode(self.texts)
        if ours.shape[1] != self.theirs.shape[1]:  # of another width: the order of similarities is what can be compared
            cosine = np.full(len(ours), np.nan)
        else:
            cosine = (_normalized(ours) * self.theirs).sum(1)
        similar = _neighbours(_normalized(ours))
        count, known = len(similar), {"rank_correlation": 1.0}

        def correlate(rows: np.ndarray) -> dict[str, float]:
            return {self.metric: spearman(self.similar[rows].tolist(), similar[rows].tolist())}

        paired = metric_differences(correlate, lambda rows: known, count, seed=self.seed)[self.metric]
        value = correlate(np.arange(count))[self.metric]
        means = mean_difference(cosine, np.zeros(len(cosine)), seed=self.seed)
        more = {"cosine": means.value, "cosine_low": means.low, "cosine_high": means.high, "cosine_min": cosine.min()}
        return Quality(self.metric, value, 1.0, value, paired, {name: float(each) for name, each in more.items()})

    def work(self) -> Work:
        return _encode_work(self.tokenizer, self.texts)


class LossJudge(Judge):
    """By the loss of held-out tokens."""

    def __init__(self, original: TextEncoder, examples: Examples, seed: int = 0):
        super().__init__(original)
        self.original, self.seed, self.metric = original, seed, token_losses(original.model)[0]
        texts, prepared = examples.texts, examples.prepared
        self.text = TokenizedTexts(texts, self.tokenizer, TOKENS) if prepared is None else prepared
        self.texts = list(texts) if prepared is None else _decode(prepared, self.tokenizer)
        self.theirs = self.losses(original)
        if not self.theirs.counts.sum():
            raise InputError("--data", "nothing to predict", "text of a few examples is needed", "give more")

    def losses(self, encoder: TextEncoder) -> RowLosses:
        ids = token_ids(self.tokenizer, encoder)
        batches = renumber(unit_batches(self.original, self.text, self.tokenizer, self.seed), ids)
        return row_losses(encoder.model, batches, self.metric)

    def judge(self, encoder: TextEncoder) -> Quality:
        ours = self.losses(encoder)
        value, original = ours.mean, self.theirs.mean
        difference = ours.less(self.theirs, self.seed)
        return Quality(self.metric, value, original, _share(original, value), difference, lower=True)

    def work(self) -> Work:
        if self.original.recipe.decoder is None:
            return _encode_work(self.tokenizer, self.texts)
        batches = list(itertools.islice(unit_batches(self.original, self.text, self.tokenizer), 8))
        tokens = sum(batch.real for batch in batches)

        @torch.no_grad()
        def run(encoder: TextEncoder, some: int) -> None:
            for batch in renumber(batches[:some], token_ids(self.tokenizer, encoder)):
                encoder.model(batch)

        return Work(lambda e: run(e, len(batches)), lambda e: run(e, 1), tokens, self.texts[0])


def make_judge(original: TextEncoder, examples: Examples, seed: int = 0) -> Judge:
    """The judge for the kind of model it is."""
    if original.recipe.task is not None:
        assert examples.table is not None
        return TaskJudge(original, examples.table, seed)
    if original.recipe.pooling is None and token_losses(original.model):
        return LossJudge(original, examples, seed)
    texts = examples.texts
    if not texts and examples.prepared is not None and original.tokenizer is not None:
        texts = _decode(examples.prepared, original.tokenizer)
    return VectorJudge(original, texts, seed)


def _encode_work(tokenizer: Tokenizer, texts: Sequence[str]) -> Work:
    many, short, tokens = _choose(tokenizer, texts[:SAMPLE])
    some = [texts[at] for at in many]
    return Work(lambda e: e.encode(some), lambda e: e.encode(texts[short]), tokens, texts[short])


def _choose(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[list[int], int, int]:
    """Texts of about `WORK` tokens together, the one that is nearest to `SHORT`, and their tokens."""
    lengths = np.array([len(each.ids) for each in tokenizer.encode(list(texts))])
    many = max(1, int(np.searchsorted(np.cumsum(lengths), WORK)))
    return list(range(min(many, len(texts)))), int(np.abs(lengths - SHORT).argmin()), int(lengths[:many].sum())


def _decode(text: TakenText, tokenizer: Tokenizer) -> list[str]:
    """The documents as far as tokens tell what they were."""
    edges = text.sentences[text.documents][: SAMPLE + 1]
    parts = np.split(text.columns.tokens[: edges[-1]], edges[1:-1])
    return [tokenizer.write(part.tolist()) for part in parts]


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _neighbours(vectors: np.ndarray) -> np.ndarray:
    return (vectors * np.roll(vectors, 1, axis=0)).sum(1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float(part == whole)
