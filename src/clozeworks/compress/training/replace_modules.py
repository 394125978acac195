"""Layers that learn in the place of those that they replace."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step
from clozeworks.compress.structure import copy_recipe
from clozeworks.compress.training.distil import (
    RATE,
    WIDTH,
    check_teacher,
    epochs,
    make_student,
    take_learned,
    train_student,
)
from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count, Part, Positive
from clozeworks.core.context import Context
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.nn.block import BlockLayer
from clozeworks.optim.settings import Train

REPLACING = 2 / 3  # of the steps; in the others all layers are the new ones, and everything learns


@dataclass(slots=True)
class ReplaceModules(Step):
    """BERT-of-Theseus (Xu et al. 2020): each layer learns in the place of a group of the original's.

        y = r g(x) + (1 - r) f_m(... f_1(x)),   r ~ Bernoulli(p) a group and step,   p(t) = p_1 + (1 - p_1) t / T

    g is a layer of the cut model, f_1 ... f_m are the layers of the original that it stands for: an equal share of
    them, in order. While T steps, two thirds of `steps`, go by, p grows from `chance` to 1; only g learns, by the
    model's own loss, and there is no other: the original teaches by being what is around. In the last third everything
    learns, without the original. At least one group is replaced in every step; the paper lets a step pass without.

    It follows `layers`, to a number that divides the original's, and comes before what changes the tokens (vocab) or
    rounds the weights (int8). Like `distil` it makes nothing smaller or faster.
    """

    name: ClassVar[str] = "theseus"
    main: ClassVar[str | None] = "steps"
    structural: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    steps: Count = 300
    chance: Part = 0.5
    learning_rate: Positive | None = None  # None: 1e-4 x 768 / width

    def apply(self, bundle: B, data: Data) -> B:
        """The same recipe with other weights; the original stays as it is."""
        copy_recipe(bundle)
        original = check_teacher(bundle, data.teacher, self.name)
        size = group_size(bundle, original)
        student, theirs = make_student(bundle, ()), [*copy.deepcopy(original.model.encoder.stack.blocks)]
        learned = [parameter for parameter in student.parameters() if parameter.requires_grad]
        blocks = student.encoder.stack.blocks
        groups = [Replaced(block, theirs[at * size : (at + 1) * size]) for at, block in enumerate(blocks)]
        student.requires_grad_(False)
        for at, group in enumerate(groups):
            blocks[at] = group
            for parameter in group.own.parameters():
                parameter.requires_grad_(any(parameter is each for each in learned))
        replacing = max(round(REPLACING * self.steps), 1)

        def draw(done: int) -> None:
            chance = min(1.0, self.chance + (1 - self.chance) * done / max(replacing - 1, 1))
            choose_replaced(groups, chance, int(counter_rng.fold(data.seed, "theseus", done)))

        draw(0)
        batches = epochs(bundle, data, self.steps)
        train_student(student, batches, self._train(bundle, data, replacing), after=draw)
        for at, group in enumerate(groups):
            blocks[at] = group.own
        for parameter in learned:
            parameter.requires_grad_(True)
        if self.steps > replacing:
            train_student(student, batches, self._train(bundle, data, self.steps - replacing))
        return take_learned(bundle, student)

    def _train(self, bundle: Bundle, data: Data, steps: int) -> Train:
        rate = self.learning_rate or RATE * WIDTH / bundle.recipe.encoder.width
        return Train(steps=steps, learning_rate=rate, warmup=0.1, seed=data.seed)


class Replaced(nn.Module):
    """A block, or those that it stands for, which are no part of what is trained or stored."""

    def __init__(self, own: nn.Module, others: Sequence[nn.Module]):
        super().__init__()
        self.own, self.replaced = own, True
        self.others = tuple(other.requires_grad_(False) for other in others)

    def forward(
        self, x: Tensor, past: None, source: None, context: Context, asked: None = None, asking: None = None
    ) -> tuple[Tensor, None, None, None]:
        """As `BlockLayer`, where nothing was read before and nothing is kept; only the last picks places."""
        if self.replaced:
            return self.own(x, past, source, context)
        *first, last = self.others
        for block in first:
            x = block(x, past, source, context.replace(positions=None))[0]
        return last(x, past, source, context)


def choose_replaced(groups: Sequence[Replaced], chance: float, key: int) -> None:
    """Which groups are replaced: each with this chance, one at least."""
    draws = counter_rng.uniform(counter_rng.fold(key, np.arange(len(groups))))
    for group, draw in zip(groups, draws.tolist(), strict=True):
        group.replaced = draw < chance
    groups[int(draws.argmin())].replaced = True


def group_size(bundle: Bundle, original: Bundle) -> int:
    """How many layers of the original each layer stands for; refused where that is no whole number above 1, or where
    layers do more than give vectors."""
    own, theirs = bundle.recipe.encoder.stack, original.recipe.encoder.stack
    where = "--apply theseus"
    blocks = (*bundle.model.encoder.stack.blocks, *original.model.encoder.stack.blocks)
    plain = all(type(block) is BlockLayer for block in blocks) and theirs.streams == theirs.directions == 1
    if bundle.recipe.decoder is not None or theirs.memory or theirs.stateful or not plain:
        needed = "it replaces layers that give one vector a token and remember nothing, of an encoder without a decoder"
        raise InputError(where, bundle.recipe.name, needed, "use distil")
    if theirs.depth % own.depth or theirs.depth == own.depth:
        needed = f"each layer stands for as many of the original's {theirs.depth}, two at least"
        halves = [str(n) for n in range(1, theirs.depth) if theirs.depth % n == 0]
        raise InputError(where, f"{own.depth} layers", needed, f"keep {' or '.join(halves)}, as layers=... before it")
    return theirs.depth // own.depth
