"""Mask single tokens."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import NonNegative
from clozeworks.core.errors import InputError
from clozeworks.core.examples import RaggedBatch, Vocabulary
from clozeworks.objectives.mask.fit import fit
from clozeworks.objectives.mask.masking import Chosen, Masking, hide, spread
from clozeworks.objectives.mask.order import raced
from clozeworks.objectives.mask.units import single


@dataclass(slots=True)
class MaskTokens(Masking):
    """Tokens chosen one by one, every choice of that many equally likely (Devlin et al. 2018, 3.1).

    With `rounding="random"` this is RoBERTa's (Liu et al. 2019, 4.1). A new choice every epoch.

    With `rare` = a > 0 rare tokens are chosen more often: one after another, without replacement, each time with a
    probability in proportion to c^-a, c being how often the corpus has the token, 1 at least (Sanh et al. 2019,
    published code, a = 0.7). That code draws over the tokens of a whole batch; here each example has its own number.
    """

    rare: NonNegative = 0.0

    @property
    def needs_counts(self) -> bool:
        return self.rare > 0 or self.replace.source == "corpus"

    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        return self.choose_units(examples, keys, single(examples))

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        chosen = self.choose(examples, keys) if self.rare == 0 else self._choose_rare(examples, keys, vocabulary)
        return hide(examples, chosen, keys, self.replace, vocabulary)

    def _choose_rare(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> Chosen:
        if vocabulary.counts is None:
            raise InputError("corruption.rare", self.rare, "the token counts of the corpus are needed", "use 0")
        units = single(examples)
        speed = np.maximum(vocabulary.counts[examples.tokens[units.at]], 1) ** -self.rare
        order = raced(units.first, speed, counter_rng.fold(keys, "choose"))
        return spread(units, *fit(units, order, self.budget(examples, keys, units.counts)))
