"""A recipe: everything that defines a pretrained model, as one tree of specs."""

from dataclasses import dataclass, field

import torch

from clozeworks import spec
from clozeworks.errors import RecipeError
from clozeworks.model import Encoder, Model, initialise
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.objective import Objective
from clozeworks.spec import Spec
from clozeworks.train.settings import Distil, Train


@dataclass(slots=True)
class Recipe(Spec):
    name: str
    encoder: Encoder
    objective: Objective
    train: Train
    distil: Distil | None = field(default=None, metadata=spec.LATE)

    def check(self, where: str) -> None:
        corruption, stack = self.objective.corruption, self.encoder.stack
        for mixer in stack.mixers():
            if corruption is not None and corruption.kind not in mixer.honours:
                raise RecipeError(
                    f"{where}.objective.corruption",
                    type(corruption).__name__,
                    f"{type(mixer).__name__} cannot hide what {corruption.kind} visibility hides",
                    "change the mixer or the corruption",
                )
        two = corruption is not None and corruption.hides == "two streams"
        if two and stack.streams != 2:
            raise RecipeError(
                f"{where}.objective.corruption",
                type(corruption).__name__,
                "its rows hold the answers, which a stack with one stream can simply read",
                "use a stack with two streams, or another corruption",
            )
        if stack.streams == 2 and not two:
            raise RecipeError(
                f"{where}.encoder.stack",
                type(stack).__name__,
                "its second stream predicts tokens in an order, and nothing gives them one",
                "use corruption=Permute() or a stack with one stream",
            )
        if self.encoder.pooler is None and any("pooled" in loss.reads for loss in self.objective.losses):
            raise RecipeError(f"{where}.encoder.pooler", None, "a loss reads the pooled vector", "use Pooler()")
        positions = self.encoder.embed.positions
        if isinstance(positions, LearnedPositions) and self.longest() > positions.length:
            raise RecipeError(
                f"{where}.encoder.embed.positions.length",
                positions.length,
                f"examples are up to {self.longest()} tokens long",
                f"use at least {self.longest()}",
            )
        if self.distil is not None and self.distil.freeze_positions and not isinstance(positions, LearnedPositions):
            raise RecipeError(f"{where}.distil.freeze_positions", True, "there is no table of positions", "use false")
        start = self.distil.start if self.distil is not None else None
        if isinstance(start, tuple) and len(start) != stack.depth:
            needed = f"one layer of the teacher for each of {stack.depth} is needed"
            raise RecipeError(f"{where}.distil.start", list(start), needed, 'use "spread"')
        if self.train.batch_tokens < self.longest():
            raise RecipeError(
                f"{where}.train.batch_tokens",
                self.train.batch_tokens,
                f"one row is {self.longest()} tokens long",
                f"use at least {self.longest()}",
            )

    @property
    def taught(self) -> bool:
        """Whether it is trained with a teacher."""
        reads = any("teacher" in loss.reads for loss in self.objective.losses)
        return reads or (self.distil is not None and self.distil.start is not None)

    def longest(self) -> int:
        """The longest example any phase trains on."""
        return max([phase.length for phase in self.train.phases] or [self.objective.segments.length])


def build(recipe: Recipe) -> Model:
    """The model with fresh weights, the same for the same seed."""
    spec.check(recipe, recipe.name)
    with torch.random.fork_rng():  # a part's own constructor may draw from the global generator
        torch.manual_seed(recipe.train.seed)
        model = Model(recipe.encoder, recipe.objective.losses)
    initialise(model, recipe.encoder.init, recipe.train.seed)
    if recipe.distil is not None and recipe.distil.freeze_positions and model.encoder.embed.positions is not None:
        model.encoder.embed.positions.requires_grad_(False)
    return model


def count_parameters(recipe: Recipe, heads: bool = True) -> int:
    """Every tensor once, nothing allocated; without heads, the published encoder class (with its pooler)."""
    with torch.device("meta"):
        spec.check(recipe, recipe.name)
        model = Model(recipe.encoder, recipe.objective.losses if heads else ())
    return sum(parameter.numel() for parameter in model.parameters())
