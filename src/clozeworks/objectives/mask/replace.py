"""What stands in the place of a hidden token."""

from dataclasses import dataclass

import numpy as np

from clozeworks import draws
from clozeworks.errors import RecipeError
from clozeworks.examples import Vocabulary
from clozeworks.spec import Spec


@dataclass(slots=True)
class Replace(Spec):
    """80 % the mask token, 10 % a random token, 10 % left as it is (Devlin et al. 2018, 3.1).

    `specials` tells whether the random token may be a special one: BERT draws from the whole vocabulary, RoBERTa
    leaves the special tokens out.
    """

    mask: float = 0.8
    random: float = 0.1
    specials: bool = True

    def check(self, where: str) -> None:
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1 + 1e-9:
            raise RecipeError(
                where,
                f"mask {self.mask}, random {self.random}",
                "two shares, together at most 1, are needed",
                "use 0.8 and 0.1",
            )

    def draw(self, tokens: np.ndarray, keys: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """New tokens for hidden ones, one key a token."""
        fate = draws.uniform(keys)
        out = np.where(fate < self.mask, np.int32(vocabulary.mask), tokens)
        at = np.flatnonzero((fate >= self.mask) & (fate < self.mask + self.random))
        if self.specials:
            out[at] = draws.below(vocabulary.size, keys[at], 1)
        else:
            ordinary = np.setdiff1d(np.arange(vocabulary.size, dtype=np.int32), vocabulary.special)
            out[at] = ordinary[draws.below(len(ordinary), keys[at], 1)]
        return out
