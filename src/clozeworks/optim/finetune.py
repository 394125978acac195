"""How a labelled set is gone through."""

from dataclasses import dataclass, field

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import LATE, Spec


@dataclass(slots=True)
class Tune(Spec):
    """`batch` rows a step, each row once an epoch. With `freeze` the encoder gives features and learns nothing: no
    gradient, no dropout in it. With `thaw` the heads learn first, and every so many steps one layer more, from the top.
    With `patience` the run ends after so many evaluations without a better one."""

    epochs: int = 3
    batch: int = 32
    freeze: bool = False
    patience: int | None = None
    thaw: int | None = field(default=None, metadata=LATE)

    def check(self, where: str) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{where}.{name}", getattr(self, name), "at least 1 is needed", "change it")
        for name in ("patience", "thaw"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RecipeError(f"{where}.{name}", value, "at least 1 is needed", "use None")
        if self.freeze and self.thaw is not None:
            raise RecipeError(f"{where}.thaw", self.thaw, "the encoder is frozen for good", "use one of the two")
