"""Single weights that a model does without."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, parameters
from clozeworks.compress.training.distil import (
    RATE,
    WIDTH,
    Teaching,
    epochs,
    fit_student,
    make_student,
    pick_teacher,
    soft_losses,
)
from clozeworks.core.bounds import Count, Part
from clozeworks.core.errors import InputError
from clozeworks.model import Model
from clozeworks.nn.int8.parts import quantizable
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.optim.settings import Train

EVERY = 10  # steps between two choices
TIE = 1e-6  # of a weight's size, which decides where nothing else does


@dataclass(slots=True)
class PruneWeights(Step):
    """Unstructured pruning: of the weights of linear parts and the table of words the `share` that counts least is 0.

        c = |w|                                    by = magnitude, at once (Han et al. 2015), or gradual
        c = - sum over steps of w dL/dw            by = movement (Sanh et al. 2020): what grows stays
        share after step t of T:  share (1 - (1 - t / T)^3)       (Zhu & Gupta 2017)

    Gradually and by movement the others learn for so many `steps`, as in `DistilOriginal`, from the model before all
    steps, while weights go; a pruned one keeps its value unseen, and comes back where movement says that it should.
    `scope` = global: the least of all matrices together, each divided by its root mean square; layer: the same share of
    each matrix.

    It saves room on the disk and nothing else: zeros are stored as bits (`exchange.weights.sparse`) and multiplied like
    any other number, so that the clock gains nothing.
    """

    name: ClassVar[str] = "weights"
    main: ClassVar[str | None] = "share"
    structural: ClassVar[bool] = False
    share: Part = 0.5
    by: Literal["magnitude", "gradual", "movement"] = "magnitude"
    scope: Literal["global", "layer"] = "global"
    steps: Count = 300

    def apply(self, bundle: B, data: Data) -> B:
        """The same recipe with zeros among its weights."""
        recipe = copy_recipe(bundle)
        if not quantizable(bundle.model):
            needed, todo = "it has no linear part and no table of words", "use another step"
            raise InputError(recipe.name, "nothing to prune", needed, todo)
        if self.by == "magnitude":
            weights = parameters(bundle.model)
            for names, mask in self._choose_once(bundle.model):
                for name in names:
                    weights[name] = torch.where(mask, weights[name], 0.0)
            return rebuild(bundle, bundle.recipe, choose(bundle.recipe, weights))
        teacher = pick_teacher(bundle, data.teacher)
        student = make_student(bundle, (HiddenCosine(), *soft_losses(bundle, teacher, 1.0)))
        train = Train(
            steps=self.steps,
            learning_rate=RATE * WIDTH / bundle.recipe.encoder.width,
            warmup=0.1,
            seed=data.seed,
        )
        masks = Masks([part for part, _ in prunable(student)], self)
        taught = Teaching(teacher.model, student.specs)
        return fit_student(bundle, student, epochs(bundle, data, self.steps), train, taught, masks.after)

    def _choose_once(self, model: Model) -> list[tuple[list[str], Tensor]]:
        parts = prunable(model)
        masks = select([_by_size(weight.detach().cpu()) for weight, _ in parts], self.share, self.scope)
        return [(names, mask) for (_, names), mask in zip(parts, masks, strict=True)]

    def reached(self, step: int) -> float:
        """The share that is 0 after a step."""
        return self.share * (1 - (1 - step / self.steps) ** 3)


def prunable(model: Model) -> list[tuple[nn.Parameter, list[str]]]:
    """The matrices of linear parts and tables, each with all of its names."""
    parts: dict[int, tuple[nn.Parameter, list[str]]] = {}
    for name, part in quantizable(model).items():
        weight: Any = part.weight
        parts.setdefault(id(weight), (weight, []))[1].append(f"{name}.weight")
    return list(parts.values())


class Masks:
    """Which weights take part while a model learns, and what those that do not were."""

    def __init__(self, weights: list[nn.Parameter], step: PruneWeights):
        self.weights, self.step = weights, step
        self.values = [weight.detach().clone() for weight in weights]
        self.masks = [torch.ones_like(weight, dtype=torch.bool) for weight in weights]
        self.moved = [torch.zeros_like(value) for value in self.values]
        for at, weight in enumerate(weights):
            if weight.requires_grad:
                weight.register_hook(partial(self._look, at))

    def _look(self, at: int, gradient: Tensor) -> Tensor:
        if self.step.by == "movement":
            self.moved[at] -= torch.nan_to_num(gradient) * self.values[at]
        return gradient * self.masks[at]

    @torch.no_grad()
    def after(self, number: int) -> None:
        """What was learned is kept, and whatever does not take part is 0 again."""
        for weight, value, mask in zip(self.weights, self.values, self.masks, strict=True):
            value.copy_(torch.where(mask, weight, value))
        if number % EVERY == 0 or number == self.step.steps:
            self.masks = select(self._count(), self.step.reached(number), self.step.scope)
        for weight, value, mask in zip(self.weights, self.values, self.masks, strict=True):
            weight.copy_(torch.where(mask, value, 0.0))

    def _count(self) -> list[Tensor]:
        if self.step.by == "gradual":  # one that is 0 stays so
            return [_by_size(torch.where(mask, v, 0.0)) for v, mask in zip(self.values, self.masks, strict=True)]
        return [_by_root(m) + TIE * _by_size(v) for m, v in zip(self.moved, self.values, strict=True)]


def select(scores: list[Tensor], share: float, scope: str) -> list[Tensor]:
    """True where a weight stays: all but the `share` of lowest scores, of all matrices together or of each."""
    if scope == "layer":
        return [score > _threshold(score.flatten(), share) for score in scores]
    least = _threshold(torch.cat([score.flatten() for score in scores]), share)
    return [score > least for score in scores]


def _threshold(scores: Tensor, share: float) -> float:
    count = round(share * len(scores))
    if not count:
        return float("-inf")
    return float(np.partition(scores.cpu().numpy(), count - 1)[count - 1])  # kthvalue takes ages where many are 0


def _by_size(weight: Tensor) -> Tensor:
    return _by_root(weight.abs())


def _by_root(x: Tensor) -> Tensor:
    return x / x.square().mean().sqrt().clamp(min=1e-30)
