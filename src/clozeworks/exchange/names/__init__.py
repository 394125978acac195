"""One table of names a family, used in both directions."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from clozeworks.exchange.heads import Head
from clozeworks.recipe import Recipe
from clozeworks.tasks.template import InputTemplate

Names = tuple[tuple[str, str], ...]  # (ours, theirs), {i} a layer number


@dataclass(frozen=True)
class Family:
    """How one published family writes the model that a recipe describes."""

    model_type: str
    names: Names
    tied: dict[str, str]  # their second name of a tensor -> our name
    prefix: str  # of the encoder inside a class with heads; a bare encoder is saved without it
    read: Callable[[dict[str, Any], tuple[str, ...]], Recipe]  # config and the losses found -> recipe
    write: Callable[[Recipe], dict[str, Any]]  # raises RecipeError where the family has no such model
    layers: Callable[[dict[str, Any]], Names] = lambda config: ()  # names that depend on the config
    # The equal model as it is written there, or here: both change the recipe and our tensors by name.
    export_hook: Callable[[Recipe, dict[str, Tensor]], None] = lambda recipe, tensors: None
    import_hook: Callable[[dict[str, Any], Recipe, dict[str, Tensor]], None] = lambda config, recipe, tensors: None
    heads: tuple[Head, ...] = ()  # classes with the head of a task
    template: InputTemplate = field(default_factory=InputTemplate)  # of a model without a tokenizer

    def of(self, config: dict[str, Any]) -> "Family":
        """The family with every name that the model of a config has."""
        return replace(self, names=self.names + self.layers(config))

    def head(self, config: dict[str, Any]) -> Head | None:
        """The class of a config where it has the head of a task."""
        names = config.get("architectures") or ()
        found = [head for head in self.heads if head.name in names]
        return next((head for head in found if head.agrees(config)), found[0] if found else None)

    def to_theirs(self, name: str) -> str | None:
        return _rename(name, self.names, 0, 1)

    def to_ours(self, name: str) -> str | None:
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # as TensorFlow called them
        for known in (name, self.prefix + name):
            ours = _rename(known, self.names, 1, 0) or self.tied.get(known)
            if ours:
                return ours
        return None


def _rename(name: str, pairs: Names, source: int, target: int) -> str | None:
    for pair in pairs:
        pattern = re.escape(pair[source]).replace(re.escape("{i}"), r"(\d+)")
        found = re.fullmatch(pattern + r"(\.weight|\.bias)?", name)
        if found:
            *layer, ending = found.groups()
            return pair[target].replace("{i}", layer[0] if layer else "") + (ending or "")
    return None
