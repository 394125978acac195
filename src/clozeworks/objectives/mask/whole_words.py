"""Whole word masking (WWM): all tokens of a word are masked, or none."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core.examples import RaggedBatch
from clozeworks.objectives.mask.masking import Chosen, Masking
from clozeworks.objectives.mask.units import words


@dataclass(slots=True)
class MaskWholeWords(Masking):
    """Whole word masking: all tokens of a word are predicted, or none (google-research/bert 2019; Cui et al. 2019 for
    Chinese words).

    Words in random order; a word that is larger than what is left of the budget is skipped, until the budget is met or
    no word fits. Each token of a word draws its own 80/10/10. Words come from the corpus (`word_starts`): the input
    itself is the same as without whole words. Where every word is larger than the budget the published code predicts
    nothing; here one of the smallest words is predicted.
    """

    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        return self.choose_units(examples, keys, words(examples))
