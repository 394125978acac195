"""Weights that learn what rounding to int8 will do to them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step
from clozeworks.compress.structure import copy_recipe
from clozeworks.compress.training.distil import (
    RATE,
    WIDTH,
    Teaching,
    epochs,
    fit_student,
    hold_zeros,
    make_student,
    pick_teacher,
    soft_losses,
)
from clozeworks.compress.training.prune_weights import prunable
from clozeworks.core.bounds import Count, Positive
from clozeworks.core.errors import InputError
from clozeworks.model import Model
from clozeworks.nn.int8.parts import quantizable
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.optim.settings import Train

LEVELS = 127  # on each side of zero, as `Quantize` has them


@dataclass(slots=True)
class QuantizationAware(Step):
    """Quantization-aware training (Jacob et al. 2018; of BERT: Zafrir et al. 2019): the model learns for `steps` steps
    as it will be after `int8`, which should come next.

        y = Q(W) Q(x) + b,    Q(x) = s round(x / s),  s = max |x| / 127
        dL/dW = dL/dQ(W),     dL/dx = dL/dQ(x)                               (straight-through; Bengio et al. 2013)

    s is that of a row of a matrix or of a token, as `Quantize` has it, of linear parts and the table of words. What
    learns is W; what is left in the end is Q(W), which int8 stores without another error. The losses are those of
    `distil`, with the model before all steps as the teacher, or the model itself where that one reads other tokens.
    Nothing becomes smaller or faster by it.
    """

    name: ClassVar[str] = "qat"
    main: ClassVar[str | None] = "steps"
    structural: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    steps: Count = 300
    learning_rate: Positive | None = None  # None: 1e-4 x 768 / width

    def apply(self, bundle: B, data: Data) -> B:
        """The same recipe with weights that are multiples of their scales."""
        recipe = copy_recipe(bundle)
        if not quantizable(bundle.model):
            needed, todo = "it has no linear part and no table of words", "use another step"
            raise InputError(recipe.name, "nothing to make int8", needed, todo)
        teacher = pick_teacher(bundle, data.teacher)
        student = make_student(bundle, (HiddenCosine(), *soft_losses(bundle, teacher, 1.0)))
        rate = self.learning_rate or RATE * WIDTH / recipe.encoder.width
        train = Train(steps=self.steps, learning_rate=rate, warmup=0.1, seed=data.seed)
        taught, rounding = Teaching(teacher.model, student.specs), Rounding(student)
        return fit_student(bundle, student, epochs(bundle, data, self.steps), train, taught, rounding.after)


class Rounding:
    """Has a model compute with rounded weights and tokens, and keeps the weights that learn."""

    def __init__(self, model: Model):
        self.hold = hold_zeros(model)  # what was pruned stays so
        self.weights = [weight for weight, _ in prunable(model)]
        self.values = [weight.detach().clone() for weight in self.weights]
        self.rounded = [round_rows(value) for value in self.values]
        self._place()
        for part in {id(part): part for part in quantizable(model).values()}.values():
            if isinstance(part, Linear):
                part.register_forward_pre_hook(_round_tokens)

    @torch.no_grad()
    def after(self, number: int) -> None:
        """The update that the optimizer made of the rounded weights is that of those that learn."""
        self.hold(number)
        for weight, value, rounded in zip(self.weights, self.values, self.rounded, strict=True):
            value += weight - rounded
        self.rounded = [round_rows(value) for value in self.values]
        self._place()

    @torch.no_grad()
    def _place(self) -> None:
        for weight, rounded in zip(self.weights, self.rounded, strict=True):
            weight.copy_(rounded)


def round_rows(x: Tensor) -> Tensor:
    """Each row of the last dimension as the nearest multiples of its largest value / 127."""
    largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return (x * (LEVELS / largest)).round() * (largest / LEVELS)


def _round_tokens(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, *others = given
    return x + (round_rows(x) - x).detach(), *others
