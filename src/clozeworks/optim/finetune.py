"""How a labelled set is gone through: epochs, batch size, early stopping (`patience`)."""

from dataclasses import dataclass

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec


@dataclass(slots=True)
class Finetune(Spec):
    """`batch_size` rows a step, each row once an epoch. With `freeze` the encoder gives features and learns nothing: no
    gradient, no dropout in it. With `unfreeze_every` (gradual unfreezing) the heads learn first, and every so many
    steps one layer more, from the top. With `patience` (early stopping) the run ends after so many evaluations without
    a better one."""

    epochs: int = 3
    batch_size: int = 32
    freeze: bool = False
    patience: int | None = None
    unfreeze_every: int | None = None

    def check(self, where: str) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{where}.{name}", getattr(self, name), "at least 1 is needed", "change it")
        for name in ("patience", "unfreeze_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RecipeError(f"{where}.{name}", value, "at least 1 is needed", "use None")
        if self.freeze and self.unfreeze_every is not None:
            raise RecipeError(
                f"{where}.unfreeze_every", self.unfreeze_every, "the encoder is frozen for good", "use one of the two"
            )
