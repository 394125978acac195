"""Build language encoders: every idea of the BERT family as an interchangeable part.

Nothing heavy is imported until a name is used.
"""

from typing import TYPE_CHECKING, Any

from clozeworks.errors import InputError, RecipeError

if TYPE_CHECKING:
    from clozeworks.api import (
        build,
        count_parameters,
        diff,
        figures,
        load,
        prepare,
        pretrain,
        recipe,
        save,
    )

    def recipes() -> list[str]: ...


__version__ = "0.1.0"
__all__ = [
    "InputError",
    "RecipeError",
    "build",
    "count_parameters",
    "diff",
    "figures",
    "load",
    "prepare",
    "pretrain",
    "recipe",
    "recipes",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from clozeworks import api

        return getattr(api, name)
    raise AttributeError(f"module 'clozeworks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
