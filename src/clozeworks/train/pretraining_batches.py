"""The batches of a pretraining run: through its phases of sequence length, from any step."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from clozeworks.core import counter_rng, spec
from clozeworks.core.batch import Batch
from clozeworks.core.examples import Vocabulary
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Epoch, Row, Source
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe


def phase_ends(train: Train, length: int) -> list[tuple[int, int]]:
    """(last step, sequence length) of each phase; one phase of `length` where the recipe names none."""
    if not train.phases:
        return [(train.steps, length)]
    shares = [sum(phase.share for phase in train.phases[: n + 1]) for n in range(len(train.phases))]
    ends = [round(share * train.steps) for share in shares[:-1]] + [train.steps]
    return [(end, phase.length) for end, phase in zip(ends, train.phases, strict=True)]


class PretrainingBatches:
    """Iterates over the micro-batches of each step after `start`; `position` is where the last one given ends.

    `share` (r, W) is what this process takes of each step. A batch size that some phase cannot have is refused at once.
    `notes` is what the user should know of the data.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpora: list[tuple[Corpus, float]],
        vocabulary: Vocabulary,
        start: int = 0,
        position: dict[str, Any] | None = None,
        share: tuple[int, int] = (0, 1),
    ):
        self.recipe, self.corpora, self.vocabulary, self.share = recipe, corpora, vocabulary, share
        self.start, self.position = start, position or {"phase": 0, "place": None}
        self.phases = phase_ends(recipe.train, recipe.objective.segments.length)
        self.loaders = [self._loader(phase, length) for phase, (_, length) in enumerate(self.phases)]
        self.notes = [note for corpus, _ in corpora for note in recipe.objective.segments.notes(corpus)]
        if (words := recipe.encoder.embed.words) is not None:
            self.notes += [note for corpus, _ in corpora for note in words.notes(corpus.unigram())]

    def __iter__(self) -> Iterator[list[Batch]]:
        step = self.start
        for phase, (end, _) in enumerate(self.phases):
            if step >= end:
                continue
            place = self.position["place"] if self.position["phase"] == phase else None
            with contextlib.closing(self.loaders[phase].steps(place)) as steps:  # pyright: ignore[reportArgumentType]
                while step < end:
                    micro, place = next(steps)
                    self.position = {"phase": phase, "place": place}
                    step += 1
                    yield micro

    @property
    def phase_ends(self) -> list[int]:
        return [end for end, _ in self.phases]

    def check_first_examples(self) -> None:
        """Make the first example of every phase and corpus: text that does not suit the objective is refused here."""
        for loader in self.loaders:
            for source in loader.sources:
                source.epoch(0).examples(np.zeros(1, dtype=np.int64))

    def rows_at(self, step: int) -> list[Row]:
        """The rows of one step after `start`, without reading those before it."""
        begin = 0
        for phase, (end, _) in enumerate(self.phases):
            if step <= end:
                known = self.position["phase"] == phase and self.position["place"] is not None
                rows = self.loaders[phase].rows(self.position["place"] if known else None)
                before = self.start if known else begin
                return next(itertools.islice(rows, step - before - 1, None))[0]
            begin = end
        raise ValueError(f"step {step} is beyond the last, {begin}")

    def _loader(self, phase: int, length: int) -> Loader:
        objective, train = self.recipe.objective, self.recipe.train
        # Another length cuts the text anew, so a phase starts over, and with draws of its own.
        seed = int(counter_rng.fold(train.seed, "phase", phase)) >> 1 if phase else train.seed
        segments = dataclasses.replace(objective.segments, length=length)
        corruption = objective.corruption
        if train.phases:
            spec.check(segments, f"train.phases.{phase}")
            rate = train.phases[phase].mask_rate
            corruption = corruption if rate is None else objective.at_rate(rate, f"train.phases.{phase}.mask_rate")
        return Loader(
            self.corpora,
            segments,
            corruption,
            self.vocabulary,
            seed=seed,
            batch_tokens=train.batch_tokens,
            micro_tokens=train.micro_tokens,
            share=self.share,
        )


def make_epoch(recipe: Recipe, text: Corpus, tokenizer: Tokenizer, seed: int, number: int) -> Epoch:
    objective = recipe.objective
    return Source(text, objective.segments, objective.corruption, tokenizer.vocabulary(), seed).epoch(number)
