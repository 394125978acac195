"""What all masking strategies share. Dynamic masking: a new draw each epoch, unless `copies` asks for static ones."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count, Part
from clozeworks.core.examples import NOTHING, RaggedBatch, Vocabulary, ragged_arange
from clozeworks.objectives.mask.fit import fit
from clozeworks.objectives.mask.order import shuffled
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.units import Units
from clozeworks.objectives.objective import Corruption

Rounding = Literal["nearest", "random", "up"]


class Chosen(NamedTuple):
    """The tokens to be predicted, each once, in any order, and the example of each."""

    tokens: np.ndarray
    rows: np.ndarray


@dataclass(slots=True)
class Masking(Corruption):
    """A fixed number of tokens of each example is chosen, replaced and to be predicted.

    The number is the same for every kind of unit: rate * length, specials counted, rounded to the nearest (BERT) or up
    or down at random so that the mean is exact (`"random"`, RoBERTa); or rate * tokens without the specials, rounded up
    (`"up"`, SpanBERT). At least 1, at most `most`. At rate 0.15 that is 19 of 128 and 77 of 512. Special tokens are
    never chosen. Unlike a coin per token or unit, the number does not vary.
    """

    rate: Part = 0.15
    rounding: Rounding = "nearest"
    most: Count | None = None
    replace: Replace = field(default_factory=Replace)

    def at_rate(self, rate: float, where: str) -> "Masking":
        return replace(self, rate=rate)

    @property
    def needs_counts(self) -> bool:
        """Whether `vocabulary.counts` must be there."""
        return self.replace.source == "corpus"

    @abstractmethod
    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        """What is to be predicted."""

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        return hide(examples, self.choose(examples, keys), keys, self.replace, vocabulary)

    def budget(self, examples: RaggedBatch, keys: np.ndarray, available: np.ndarray) -> np.ndarray:
        """How many tokens of each example to choose; available [examples]: those that are not special."""
        if self.rounding == "up":
            count = np.ceil(self.rate * available)
        elif self.rounding == "random":
            count = np.floor(self.rate * examples.lengths + counter_rng.uniform(counter_rng.fold(keys, "round")))
        else:
            count = np.rint(self.rate * examples.lengths)
        count = np.maximum(count, 1).astype(np.int64)
        count = count if self.most is None else np.minimum(count, self.most)
        return np.minimum(count, available)

    def choose_units(self, examples: RaggedBatch, keys: np.ndarray, units: Units) -> Chosen:
        """Units in random order; one that is larger than what is left of the budget is skipped."""
        available = units.counts if units.size is None else ordinary(examples)
        budget = self.budget(examples, keys, available)
        taken, rows = fit(units, shuffled(units.counts, counter_rng.fold(keys, "choose")), budget)
        return spread(units, taken, rows)


def ordinary(examples: RaggedBatch) -> np.ndarray:
    """[examples]: how many tokens are not special."""
    before = examples.special.nonzero()[0].searchsorted(examples.first)
    return examples.lengths - (before[1:] - before[:-1])


def spread(units: Units, taken: np.ndarray, rows: np.ndarray) -> Chosen:
    """The tokens of the units taken."""
    if units.size is None:
        return Chosen(units.at[taken], rows)
    size = units.size[taken]
    return Chosen(ragged_arange(units.at[taken], size), np.repeat(rows, size))


def hide(examples: RaggedBatch, chosen: Chosen, keys: np.ndarray, how: Replace, vocabulary: Vocabulary) -> RaggedBatch:
    """Replace the chosen tokens and label them with what they were."""
    at, rows = chosen
    tokens = examples.tokens.copy()
    labels = np.full(len(tokens), NOTHING, dtype=np.int32)
    leader = None
    if how.per == "span":
        by_place = np.argsort(at, kind="stable")
        at, rows = at[by_place], rows[by_place]
        starts = run_starts(examples, at, rows)
        leader = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    before = tokens[at]
    labels[at] = before
    bits = counter_rng.bits(keys[rows], at - examples.first[rows])
    tokens[at] = how.draw(before, bits, vocabulary, leader)
    return replace(examples, tokens=tokens, labels=labels)


def run_starts(examples: RaggedBatch, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[chosen] bool, for chosen tokens in ascending order: no chosen token of its segment stands just before it."""
    starts = np.ones(len(at), dtype=bool)
    starts[1:] = (np.diff(at) > 1) | (np.diff(rows) != 0) | (np.diff(examples.segment[at]) != 0)
    return starts
