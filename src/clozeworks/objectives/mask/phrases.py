"""Hide annotated phrases or entities."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Share
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.objectives.mask.fit import fit
from clozeworks.objectives.mask.masking import Chosen, Masking, ordinary, spread
from clozeworks.objectives.mask.order import in_turns, shuffled
from clozeworks.objectives.mask.units import annotated, single

BITS = {"phrase": (PHRASE_START, PHRASE_INSIDE), "entity": (ENTITY_START, ENTITY_INSIDE)}
EXAMPLES = {"phrase": '"phrases": [[begin, end], ...]', "entity": '"entities": [[begin, end], ...]'}


@dataclass(slots=True)
class MaskPhrases(Masking):
    """Masking in stages: single tokens, then phrases, then entities, each hidden whole (Sun et al. 2019, 3.2).

    In the stages `"phrase"` and `"entity"` the units are the annotated stretches of the text, and words elsewhere. As
    with whole words, units come in random order, one that is larger than what is left of the budget is skipped, and
    each token draws its own 80/10/10. The published code throws a coin of 0.15 per unit instead, so its count varies.

    With a `share`, each unit taken is an annotated one with that chance, while there are both kinds (0.5: the entities
    and noun phrases of Joshi et al. 2019, 6.1, whose other half is any word, one of an entity too).
    """

    stage: Literal["basic", "phrase", "entity"] = "phrase"
    share: Share | None = None

    def check(self, where: str) -> None:
        if self.share is not None and self.stage == "basic":
            needed = "it is for the stages phrase and entity"
            raise RecipeError(f"{where}.share", self.share, needed, "0.5 is usual, None takes any unit")

    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        """Tokens, or annotated units and the single tokens between them, as the stage says."""
        if self.stage == "basic":
            return self.choose_units(examples, keys, single(examples))
        if examples.units is None:
            needed = "text with annotated units is needed, this has none"
            todo = f'give prepare a .jsonl file whose lines hold {EXAMPLES[self.stage]}, or use the stage "basic"'
            raise InputError("corruption.stage", self.stage, needed, todo)
        start, inside = BITS[self.stage]
        units = annotated(examples, examples.units, start, inside)
        if self.share is None:
            return self.choose_units(examples, keys, units)
        order = shuffled(units.counts, counter_rng.fold(keys, "choose"))
        marked = (examples.units[units.at] & (start | inside)) != 0
        order = in_turns(order, units, marked, self.share, counter_rng.fold(keys, "share"))
        return spread(units, *fit(units, order, self.budget(examples, keys, ordinary(examples))))
