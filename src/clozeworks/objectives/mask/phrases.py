"""Hide annotated phrases or entities."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from clozeworks.errors import InputError
from clozeworks.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START, Ragged
from clozeworks.objectives.mask.masking import Chosen, Masking
from clozeworks.objectives.mask.units import annotated, single

BITS = {"phrase": (PHRASE_START, PHRASE_INSIDE), "entity": (ENTITY_START, ENTITY_INSIDE)}
EXAMPLES = {"phrase": '"phrases": [[begin, end], ...]', "entity": '"entities": [[begin, end], ...]'}


@dataclass(slots=True)
class MaskPhrases(Masking):
    """Masking in stages: single tokens, then phrases, then entities, each hidden whole (Sun et al. 2019, 3.2).

    In the stages `"phrase"` and `"entity"` the units are the annotated stretches of the text, and words elsewhere. As
    with whole words, units come in random order, one that is larger than what is left of the budget is skipped, and
    each token draws its own 80/10/10. The published code throws a coin of 0.15 per unit instead, so its count varies.
    """

    stage: Literal["basic", "phrase", "entity"] = "phrase"

    def choose(self, examples: Ragged, keys: np.ndarray) -> Chosen:
        if self.stage == "basic":
            return self.choose_units(examples, keys, single(examples))
        if examples.units is None:
            raise InputError(
                "corruption.stage",
                self.stage,
                "text with annotated units is needed, this has none",
                f'give prepare a .jsonl file whose lines hold {EXAMPLES[self.stage]}, or use the stage "basic"',
            )
        return self.choose_units(examples, keys, annotated(examples, examples.units, *BITS[self.stage]))
