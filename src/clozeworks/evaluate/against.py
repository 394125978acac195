"""Two models on the same examples: what one is better or worse by, with the paired interval of it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.data.batches.rows import Text
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate import heldout
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.metrics.bleu import resampled
from clozeworks.metrics.statistics import Difference, mcnemar, mean_difference, metric_differences
from clozeworks.model import Model
from clozeworks.tasks.task import Answers, Task

UNITS = 2000  # groups of rows of a text at most, of which samples are drawn


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of both models by name, and the first's less the second's; where answers are right or wrong, how many
    only one of them has right, with the p of that (McNemar)."""

    ours: dict[str, float]
    theirs: dict[str, float]
    differences: dict[str, Difference]
    only_ours: int = 0
    only_theirs: int = 0
    p: float | None = None
    examples: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


def compare_answers(task: Task, ours: Answers, theirs: Answers, table: Table, seed: int = 0) -> Comparison:
    """By every metric of the task, of answers to the same rows."""

    def scorer(answers: Answers) -> Callable[[np.ndarray], dict[str, float]]:
        return lambda rows: task.score([answers[row] for row in rows], table.some(rows.tolist()))

    differences = metric_differences(scorer(ours), scorer(theirs), len(table), seed=seed)
    right, other = (task.badness(answers, table) == 0 for answers in (ours, theirs))
    graded = not (right.any() or other.any())  # a score is never exactly right
    return Comparison(
        task.score(ours, table),
        task.score(theirs, table),
        differences,
        only_ours=int((right & ~other).sum()),
        only_theirs=int((other & ~right).sum()),
        p=None if graded else mcnemar(right, other),
        examples=len(table),
    )


@dataclass(frozen=True, slots=True)
class RowLosses:
    """Of each group of rows of a text the summed loss of its predictions, and how many there are."""

    sums: np.ndarray  # float64 [n]
    counts: np.ndarray  # int64 [n]

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / max(self.counts.sum(), 1))

    def less(self, other: "RowLosses", seed: int = 0) -> Difference:
        """Our mean less that of the other, of the same predictions."""
        counts = np.maximum(self.counts, 1)
        return mean_difference(self.sums / counts, other.sums / counts, self.counts, seed=seed)


@torch.no_grad()
def row_losses(model: Model, batches: Iterable[Batch], name: str) -> RowLosses:
    """The loss of this name, batch by batch; a model with memory has nothing in it before the first."""
    device, memory = next(model.parameters()).device, SegmentMemory()
    sums, counts = list[float](), list[int]()
    for batch in batches:
        batch = batch.to(device)
        output = model(memory.give(batch))
        memory.take(batch, output.hidden.memory)
        sums.append(float(output.losses[name]))
        counts.append(model.count(batch)[name])
    return RowLosses(np.array(sums, np.float64), np.array(counts, np.int64))


def token_losses(model: Model) -> list[str]:
    """The losses over tokens that a model can compute by itself, the main one first."""
    return [each.name for each in model.specs if "labels" in each.needs.reads and "teacher" not in each.needs.reads]


def unit_batches(encoder: TextEncoder, text: Text, tokenizer: Tokenizer, seed: int = 0) -> Iterator[Batch]:
    """The held-out examples of a model's objective, some rows at a time: what a sample is drawn of."""
    objective = encoder.recipe.objective
    length, total = objective.segments.length, int(text.sentences[-1])
    rows = max(1, -(-total // (length * UNITS)))
    yield from heldout.batches(text, objective, tokenizer.vocabulary(), seed, rows * length)


def compare_text(ours: TextEncoder, theirs: TextEncoder, text: Corpus, seed: int = 0) -> Comparison:
    """By the loss of held-out tokens, under the same masks: those of the first model's objective."""
    names = [name for name in token_losses(ours.model) if name in token_losses(theirs.model)]
    if not names:
        kinds = [", ".join(token_losses(each.model)) or "nothing" for each in (ours, theirs)]
        needed, todo = "both must predict tokens in the same way", "compare models of one kind"
        raise InputError("--against", f"one predicts {kinds[0]}, the other {kinds[1]}", needed, todo)
    length = ours.recipe.objective.segments.length
    if length > theirs.longest:
        needed = f"the other has {theirs.longest} positions"
        raise InputError("--max-length", length, needed, f"use {theirs.longest} or less")
    read = Tokenizer.load(text.directory)
    measured = []
    for each in (ours, theirs):
        batches = renumber(unit_batches(ours, text, read, seed), token_ids(read, each))
        measured.append(row_losses(each.model, batches, names[0]))
    one, other = measured
    return Comparison(
        {"loss": one.mean},
        {"loss": other.mean},
        {"loss": one.less(other, seed)},
        examples=len(one.sums),
        facts={"count": int(one.counts.sum())},
    )


def token_ids(read: Tokenizer, encoder: TextEncoder) -> torch.Tensor | None:
    """[V]: what a model calls each token of a text that was prepared with another tokenizer; None: the same.

    A vocabulary may be a part of the other one, as after trimming: what it lacks is unknown. Others are refused.
    """
    own = encoder.tokenizer
    if own is None or own.fingerprint == read.fingerprint:
        return None
    known = [own.id(read.token(index)) for index in range(read.size)]
    if len({index for index in known if index is not None}) < own.size:
        needed = "both models must read the tokens of this text"
        todo = "prepare the text again with --tokenizer set to the model's directory"
        raise InputError(encoder.recipe.name, "another tokenizer than the text was prepared with", needed, todo)
    unknown = own.need("unk")
    return torch.tensor([unknown if index is None else index for index in known])


def renumber(batches: Iterable[Batch], ids: torch.Tensor | None) -> Iterator[Batch]:
    """The same examples under other numbers of their tokens."""
    for batch in batches:
        if ids is not None:
            source = batch.source and dataclasses.replace(batch.source, tokens=ids[batch.source.tokens])
            batch = dataclasses.replace(batch, tokens=ids[batch.tokens], source=source)
            batch.labels = None if batch.labels is None else ids[batch.labels]
        yield batch


def compare_translations(ours: Sequence[str], theirs: Sequence[str], wanted: Sequence[str], small: bool) -> Comparison:
    """By corpus BLEU, of translations of the same sentences."""

    def scorer(texts: Sequence[str]) -> Callable[[np.ndarray], dict[str, float]]:
        def score(rows: np.ndarray) -> dict[str, float]:
            at: list[int] = rows.tolist()
            return {"bleu": resampled([texts[row] for row in at], [wanted[row] for row in at], small)}

        return score

    one, other, every = scorer(ours), scorer(theirs), np.arange(len(wanted))
    differences = metric_differences(one, other, len(wanted))
    return Comparison(one(every), other(every), differences, examples=len(wanted))
