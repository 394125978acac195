"""Published families: one table of names each, used in both directions, and what is not a matter of names."""

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
    """How one published family writes the model that a recipe describes.

    `read` makes the recipe of a config and of the losses whose heads the file has; `write` makes the config of a
    recipe, and raises RecipeError where the family has no such model. Both come from one `ConfigTable`.

    Where tensors are not the same under another name, hooks change them in place, by our names: `import_hook` makes
    ours from theirs (joined products taken apart, transposed ones turned), and may settle in the recipe what the
    tensors alone tell; `export_hook` makes the equal model that the family's class can hold, and changes recipe and
    tensors together. Neither changes what the model computes.
    """

    model_type: str
    names: Names
    tied: dict[str, str]  # their second name of a tensor -> our name
    prefix: str  # of the encoder inside a class with heads; a bare encoder is saved without it
    read: Callable[[dict[str, Any], tuple[str, ...]], Recipe]
    write: Callable[[Recipe], dict[str, Any]]
    layers: Callable[[dict[str, Any]], Names] = lambda config: ()  # names that depend on the config
    export_hook: Callable[[Recipe, dict[str, Tensor]], None] = lambda recipe, tensors: None
    import_hook: Callable[[dict[str, Any], Recipe, dict[str, Tensor]], None] = lambda config, recipe, tensors: None
    heads: tuple[Head, ...] = ()  # classes with the head of a task
    reorders: bool = False  # whether its hooks may bring the units of vectors into another order
    unsaid: tuple[str, ...] = ()  # paths of fields that no directory says, and that change nothing where it is written
    template: InputTemplate = field(default_factory=InputTemplate)  # of a model without a tokenizer

    def of(self, config: dict[str, Any]) -> "Family":
        """The family with every name that the model of a config has."""
        return replace(self, names=self.names + self.layers(config))

    def head(self, config: dict[str, Any]) -> Head | None:
        """The class of a config where it has the head of a task."""
        names = config.get("architectures") or ()
        heads = [head for head in self.heads if head.name in names]
        return next((head for head in heads if head.agrees(config)), heads[0] if heads else None)

    def to_theirs(self, name: str) -> str | None:
        """Their name of one of our tensors."""
        return _rename(name, self.names, 0, 1)

    def to_ours(self, name: str) -> str | None:
        """Our name of one of their tensors, with or without the prefix; None of what we have no part for."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # as TensorFlow called them
        for known in (name, self.prefix + name):
            ours = _rename(known, self.names, 1, 0) or self.tied.get(known)
            if ours:
                return ours
        return None


def _rename(name: str, pairs: Names, source: int, target: int) -> str | None:
    for pair in pairs:
        pattern = re.escape(pair[source]).replace(re.escape("{i}"), r"(\d+)")
        match = re.fullmatch(pattern + r"(\.weight|\.bias)?", name)
        if match:
            *layer, ending = match.groups()
            return pair[target].replace("{i}", layer[0] if layer else "") + (ending or "")
    return None
