"""How a labelled set is gone through: epochs, batch size, early stopping (`patience`)."""

from dataclasses import dataclass

from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec


@dataclass(slots=True)
class Finetune(Spec):
    """`batch_size` rows a step, each row once an epoch. With `freeze` the encoder gives features and learns nothing: no
    gradient, no dropout in it. With `unfreeze_every` (gradual unfreezing) the heads learn first, and every so many
    steps one layer more, from the top. With `patience` (early stopping) the run ends after so many evaluations without
    a better one."""

    epochs: Count = 3
    batch_size: Count = 32
    freeze: bool = False
    patience: Count | None = None
    unfreeze_every: Count | None = None

    def check(self, where: str) -> None:
        if self.freeze and self.unfreeze_every is not None:
            needed = "the encoder is frozen for good"
            raise RecipeError(f"{where}.unfreeze_every", self.unfreeze_every, needed, "use one of the two")
