"""The evaluator of a pretraining run: losses and metrics on held-out text."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Vocabulary
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate import heldout
from clozeworks.model import Model
from clozeworks.optim.keep import Score
from clozeworks.recipe import Recipe

EVALUATED = 131_072  # held-out tokens an evaluation reads at most


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
        return heldout.measure(model, self._batches(), teach)

    def score(self, figures: dict[str, Any]) -> Score:
        return (figures["loss"],)

    def should_stop(self, scores: dict[int, Score]) -> bool:
        """Never: pretraining has no early stopping."""
        return False

    def _batches(self) -> Iterator[Batch]:
        size = self.recipe.train.micro_tokens or self.recipe.train.batch_tokens
        limit = EVALUATED // len(self.texts)
        return itertools.chain.from_iterable(
            heldout.batches(text, self.recipe.objective, self.vocabulary, batch_tokens=size, limit_tokens=limit)
            for text in self.texts
        )
