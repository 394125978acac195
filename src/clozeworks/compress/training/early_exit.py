"""Texts that a classifier is sure of early do not pass through all of its layers."""

import copy
import dataclasses
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import torch

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, parameters
from clozeworks.compress.training.distil import epochs, fit_student, make_student
from clozeworks.core.bounds import Count, NonNegative, Positive
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe, assemble
from clozeworks.tasks.early_exit import make_exits

RATE, WIDTH = 1e-3, 256  # the learning rate of exits of a model of this width; narrower ones learn faster
EPOCHS = 20  # that a few rows are read at most


@dataclass(slots=True)
class EarlyExit(Step):
    """Early exit (Xin et al. 2020; Schwartz et al. 2020): a linear classifier behind each layer but the last, or behind
    those that are named in `after`; a text is answered by the first whose entropy is below `threshold` (`Exits`).

    The exits are trained together in `steps` steps on labelled rows, each row 20 times at most; everything else is
    frozen and stays as it is to the bit. What is gained depends on the texts: nothing at a threshold of 0, all layers
    behind the first exit above log(labels). Cutting comes before it, for exits are fitted to the layers that there are.
    """

    name: ClassVar[str] = "exit"
    main: ClassVar[str | None] = "threshold"
    structural: ClassVar[bool] = False
    fitted: ClassVar[bool] = True
    threshold: NonNegative = 0.3
    after: tuple[Count, ...] = ()  # layers, counted from 1; (): all but the last
    steps: Count = 100
    learning_rate: Positive | None = None  # None: 1e-3 x 256 / width

    def apply(self, bundle: B, data: Data) -> B:
        """The same model with trained exits."""
        copy_recipe(bundle)
        recipe = copy.deepcopy(bundle.recipe)
        _check_data(recipe, data)
        exits = make_exits(recipe.task, recipe.encoder.stack.depth, self.after, self.threshold, "exit")
        if any(loss.name == exits.name for loss in recipe.objective.losses):
            given, needed = "a model with exits", "it has them already"
            raise InputError("exit", given, needed, "change objective.losses of its recipe, or take the model before")
        recipe.objective = dataclasses.replace(recipe.objective, losses=(*recipe.objective.losses, exits))
        model = rebuild(bundle, recipe, _with_exits(bundle, recipe))
        student = make_student(model, ())
        for name, parameter in student.named_parameters():
            parameter.requires_grad_(name.startswith(f"heads.{exits.name}."))
        student.freeze()
        batches = sum(1 for _ in islice(data.batches(model), self.steps))
        rate = self.learning_rate or RATE * WIDTH / recipe.encoder.width
        train = Train(steps=min(self.steps, EPOCHS * batches), learning_rate=rate, warmup=0.1, seed=data.seed)
        return fit_student(model, student, epochs(model, data, self.steps), train)


def _with_exits(bundle: Bundle, recipe: Recipe) -> dict[str, torch.Tensor]:
    """The weights that there are, and zeros for those of the exits."""
    weights = choose(recipe, parameters(bundle.model))
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in assemble(recipe).named_parameters()}
    return {name: weights[name] if name in weights else torch.zeros(shape) for name, shape in shapes.items()}


def _check_data(recipe: Recipe, data: Data) -> None:
    if recipe.task is not None and (data.table is None or not len(data.table)):
        given, needed = "no labelled rows", "exits are trained on rows of the task"
        raise InputError("exit", given, needed, "use Data(table=...)")
