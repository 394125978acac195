"""Hide single tokens."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from clozeworks import draws
from clozeworks.errors import RecipeError
from clozeworks.examples import NOTHING, Ragged, Vocabulary
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.objective import Corruption


@dataclass(slots=True)
class MaskTokens(Corruption):
    """A fixed number of tokens of each example, chosen at random, is to be predicted (Devlin et al. 2018, 3.1).

    The number is rate * length, specials counted, at least 1 and at most `most`: rounded to the nearest (BERT), or
    up or down at random so that the mean is exact (`rounding="random"`, RoBERTa). [CLS] and [SEP] are never chosen.
    A new choice every epoch. Unlike a coin per token, the count does not vary.
    """

    rate: float = 0.15
    rounding: Literal["nearest", "random"] = "nearest"
    most: int | None = None
    replace: Replace = field(default_factory=Replace)

    def check(self, where: str) -> None:
        if not 0 < self.rate < 1:
            raise RecipeError(f"{where}.rate", self.rate, "a share between 0 and 1 is needed", "0.15 is usual")

    def corrupt(self, examples: Ragged, keys: np.ndarray, vocabulary: Vocabulary) -> Ragged:
        candidates = np.flatnonzero(~examples.special)
        owner = examples.example[candidates]
        available = np.bincount(owner, minlength=len(examples))
        budget = np.minimum(self._budget(examples.lengths, keys), available)
        # The budget's smallest of one random number per candidate: a choice without replacement, all examples at once.
        site = draws.fold(keys, "choose")[owner]
        order = np.argsort(owner + draws.uniform(site, examples.position[candidates]))
        rank = np.arange(len(candidates)) - np.repeat(np.cumsum(available) - available, available)
        chosen = np.sort(candidates[order[rank < np.repeat(budget, available)]])
        return hide(examples, chosen, keys, self.replace, vocabulary)

    def _budget(self, lengths: np.ndarray, keys: np.ndarray) -> np.ndarray:
        wanted = self.rate * lengths
        if self.rounding == "random":
            count = np.floor(wanted + draws.uniform(draws.fold(keys, "round")))
        else:
            count = np.rint(wanted)
        count = np.maximum(count, 1).astype(np.int64)
        return count if self.most is None else np.minimum(count, self.most)


def hide(examples: Ragged, chosen: np.ndarray, keys: np.ndarray, how: Replace, vocabulary: Vocabulary) -> Ragged:
    """Replace the chosen tokens, one draw a token, and label them with what they were."""
    tokens = examples.tokens.copy()
    labels = np.full(len(tokens), NOTHING, dtype=np.int32)
    labels[chosen] = tokens[chosen]
    site = draws.fold(draws.fold(keys, "replace")[examples.example[chosen]], examples.position[chosen])
    tokens[chosen] = how.draw(tokens[chosen], site, vocabulary)
    return replace(examples, tokens=tokens, labels=labels)
