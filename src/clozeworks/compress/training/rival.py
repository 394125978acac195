"""Controls of a compression: models of the compressed one's recipe, trained as long as it was, without the original.

    rival: fresh      begins with weights that know nothing of the original: is a small model of this shape, trained
                      directly, as good?
    rival: untaught   begins with the weights that cutting left, and has no teacher: is it the teacher that helps?

Both learn by the model's own loss alone, in as many steps as `distil` took, on the same batches at the same rates. What
follows the last of these steps (vocab, int8) is done to them, too.
"""

import copy
import dataclasses
import time
from collections.abc import Sequence

from clozeworks.compress.chain import Row, State, Workshop
from clozeworks.compress.quality import make_judge
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, parameters
from clozeworks.compress.training.distil import DistilOriginal, own_losses
from clozeworks.core import spec
from clozeworks.core.bounds import LAST_SEED
from clozeworks.core.errors import InputError
from clozeworks.recipe import Recipe, build

FRESH, UNTAUGHT = "rival: fresh", "rival: untaught"


def check_rival(chain: Sequence[Step] | None) -> None:
    """Refuse a chain that trains nothing: there would be no budget to spend on another model."""
    if chain is None:
        given, needed = "rival with a target", "a search trains nothing that a rival could be trained for instead"
        raise InputError("compress", given, needed, "give steps: --apply layers,distil=300")
    if not any(isinstance(step, DistilOriginal) for step in chain):
        given = f"rival of {','.join(step.spell() for step in chain) or 'no step'}"
        needed = "the chain trains nothing, and a rival is trained for as many steps as the chain"
        raise InputError("compress", given, needed, "add distil behind what cuts: layers,distil=300")


def check_losses(recipe: Recipe) -> None:
    """Refuse a model that nothing but the original can teach."""
    if not own_losses(recipe):
        needed = "without the original there is nothing that it could learn from"
        raise InputError(recipe.name, "rival of a model without a loss of its own", needed, "leave rival out")


def measure_rivals(shop: Workshop, chain: Sequence[Step], states: Sequence[State]) -> list[Row]:
    """The rows of both rivals; `states[i]` is the model before `chain[i]`, the last one the compressed model."""
    training = [at for at, step in enumerate(chain) if isinstance(step, DistilOriginal)]
    first, last = training[0], training[-1]
    budget = [chain[at] for at in training[:-1]]
    return [
        _measure(shop, FRESH, states[last], [*budget, *chain[last:]], states[-1]),
        _measure(shop, UNTAUGHT, states[first], chain[first:], states[-1]),
    ]


def _measure(shop: Workshop, name: str, start: State, steps: Sequence[Step], compressed: State) -> Row:
    shop.tell(f"{name}: at work")
    begin, bundle = time.process_time(), start.encoder
    if name == FRESH:
        bundle = begin_anew(bundle, shop.learn.seed)
    for step in steps:
        alone = isinstance(step, DistilOriginal)
        bundle = step.train_alone(bundle, shop.learn) if alone else step.apply(bundle, shop.learn)
    state = shop.keep(bundle, (*compressed.steps, name), time.process_time() - begin)
    row = shop.measure(state, "report")
    judge = make_judge(compressed.encoder, shop.division.report, shop.seed)
    row.against = judge.judge(state.encoder).difference
    if changed := spec.diff(compressed.encoder.recipe, state.encoder.recipe):
        row.note = f"a step behind the training chose otherwise: {', '.join(sorted(changed))}"
    return row


def begin_anew(bundle: B, seed: int) -> B:
    """The same recipe with fresh weights."""
    recipe = copy.deepcopy(bundle.recipe)
    # Another draw than the one that the original began with: a short training leaves much of that in place.
    train = dataclasses.replace(recipe.train, seed=(recipe.train.seed + seed + 1) % LAST_SEED)
    model = build(dataclasses.replace(recipe, finetune=None, train=train))
    return rebuild(bundle, recipe, choose(recipe, parameters(model)))
