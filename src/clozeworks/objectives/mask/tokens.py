"""Hide single tokens."""

from dataclasses import dataclass

import numpy as np

from clozeworks.examples import Ragged
from clozeworks.objectives.mask.masking import Chosen, Masking
from clozeworks.objectives.mask.units import single


@dataclass(slots=True)
class MaskTokens(Masking):
    """Tokens chosen one by one, every choice of that many equally likely (Devlin et al. 2018, 3.1).

    With `rounding="random"` this is RoBERTa's (Liu et al. 2019, 4.1). A new choice every epoch.
    """

    def choose(self, examples: Ragged, keys: np.ndarray) -> Chosen:
        return self.choose_units(examples, keys, single(examples))
