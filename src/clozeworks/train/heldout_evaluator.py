"""The evaluator of a pretraining run: losses and metrics on held-out text."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Vocabulary
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate import heldout
from clozeworks.metrics.frequencies import unigram_baseline
from clozeworks.model import Model
from clozeworks.optim.keep import Score
from clozeworks.recipe import Recipe
from clozeworks.train.teacher import compare_tokens

EVALUATED = 131_072  # held-out tokens an evaluation reads at most
TAUGHT = 32_768  # the same where a teacher reads their text, which takes longer than the student does
PATIENCE = 30_000  # masked tokens: a model that begins well has left word frequencies behind long before
GAIN, TIMES = 0.3, 1.6  # nats and times their accuracy: what shows that more than frequencies has been learned


class HeldOutEvaluator:
    """The held-out splits of corpora that have at least one example; it is no fault to have none."""

    def __init__(
        self,
        recipe: Recipe,
        corpora: Sequence[tuple[Corpus, float]],
        vocabulary: Vocabulary,
        verify: Literal["size", "hash"] = "hash",
    ):
        self.recipe, self.vocabulary = recipe, vocabulary
        self.notes: list[str] = []
        self.texts: list[Corpus] = []
        self.taught: list[Batch] = []
        self.training, self.warned = [corpus for corpus, _ in corpora], False
        for corpus, _ in corpora:
            if "heldout" not in corpus.manifest["splits"]:
                self.notes.append(f"no evaluation on {corpus.directory}: no document was held out")
                continue
            text = Corpus.open(corpus.directory, "heldout", verify=verify)
            try:
                next(heldout.batches(text, recipe.objective, vocabulary))
                self.texts.append(text)
            except InputError as error:  # too little text for an example of this objective
                self.notes.append(f"no evaluation on {corpus.directory}: held out is {error.given}; {error.needed}")

    def __bool__(self) -> bool:
        return bool(self.texts)

    def measure(self, model: Model, teach: Callable[[Batch], Batch] | None) -> dict[str, Any]:
        if teach is None or not self.recipe.reads_texts or compare_tokens(self.recipe.objective.losses):
            return heldout.measure(model, self._batches(), teach)
        if not self.taught:  # the same vectors each time, a few numbers an example, which cost more than the student
            device = next(model.parameters()).device
            self.taught = [teach(batch.to(device)) for batch in self._batches()]
        return heldout.measure(model, self.taught)

    def score(self, metrics: dict[str, Any]) -> Score:
        return (metrics["loss"],)

    def warn(self, step: int, metrics: dict[str, Any]) -> str | None:
        """That a masked model is on the plateau: after `PATIENCE` predictions no better than word frequencies; once."""
        predicted = step * self.recipe.train.batch_tokens * getattr(self.recipe.objective.corruption, "rate", 0.0)
        if self.warned or "masked_accuracy" not in metrics or predicted < PATIENCE:
            return None
        labels = np.concatenate([batch.labels.numpy() for batch in self._batches() if batch.labels is not None])
        by_chance = unigram_baseline(np.sum([text.unigram() for text in self.training], axis=0), labels)
        gained = by_chance["unigram_loss"] - metrics["masked_lm"]
        if gained > GAIN or metrics["masked_accuracy"] > TIMES * by_chance["unigram_accuracy"]:
            return None
        self.warned = True
        compared = f"masked accuracy {metrics['masked_accuracy']:.1%}, frequencies {by_chance['unigram_accuracy']:.1%}"
        cure = (
            "--start neighbours,counted lets it begin there" if not self.recipe.start else "more tokens a step may help"
        )
        stuck = f"no better than word frequencies at step {step:,} ({compared})"
        return f"{stuck}: attention has not found where to look; {cure}"

    def should_stop(self, scores: dict[int, Score]) -> bool:
        """Never: pretraining has no early stopping."""
        return False

    def _batches(self) -> Iterator[Batch]:
        size = self.recipe.train.micro_tokens or self.recipe.train.batch_tokens
        limit = (TAUGHT if self.recipe.reads_texts else EVALUATED) // len(self.texts)
        return itertools.chain.from_iterable(
            heldout.batches(text, self.recipe.objective, self.vocabulary, batch_tokens=size, limit_tokens=limit)
            for text in self.texts
        )
