"""Build language encoders: every idea of the BERT family as an interchangeable part.

Nothing heavy is imported until a name is used.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clozeworks.core.errors import InputError, RecipeError

if TYPE_CHECKING:
    from clozeworks.api import (
        build,
        compress,
        convert,
        count_parameters,
        diff,
        evaluate,
        finetune,
        load,
        multiply_adds,
        prepare,
        pretrain,
        recipe,
        recipes,
        save,
    )
    from clozeworks.train.sklearn import TextClassifier
    from clozeworks.vectors.table import Vectors, load_vectors

__version__ = "0.1.0"
__all__ = [
    "InputError",
    "RecipeError",
    "TextClassifier",
    "Vectors",
    "build",
    "compress",
    "convert",
    "count_parameters",
    "diff",
    "evaluate",
    "finetune",
    "load",
    "load_vectors",
    "multiply_adds",
    "prepare",
    "pretrain",
    "recipe",
    "recipes",
    "save",
]


def __getattr__(name: str) -> Any:
    if name == "TextClassifier":
        from clozeworks.train.sklearn import TextClassifier

        return TextClassifier
    if name in ("Vectors", "load_vectors"):
        from clozeworks.vectors import table

        return getattr(table, name)
    if name in __all__:
        from clozeworks import api

        return getattr(api, name)
    raise AttributeError(f"module 'clozeworks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """A public name stays what it is: a room of that name (`recipe`, `evaluate`, `compress`) does not take its place
    on the package once it has been imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
