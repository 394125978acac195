"""One table of config fields a family, used in both directions.

    Field("hidden_size", "encoder.width")                                   config field <-> path in the recipe
    Field("hidden_act", "encoder.stack.block.ffn.activation", codes=...)    under other words
    Field("hidden_dropout_prob", "encoder.stack.block.dropout", also=("encoder.embed.dropout",), default=0.1)
    Constant("position_embedding_type", "absolute", needed=..., todo=...)   the same in every model that we can build

`ConfigTable.read` fills a blank recipe of the family from a config. `ConfigTable.write` spells the config of a recipe,
reads it back, and refuses what came back different: this catches every part that a config cannot say, and none needs a
rule of its own. What a family computes from several fields it does before `write` and after `read`.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.nn.stack import Share, Stack
from clozeworks.recipe import Recipe

CONFIG = "config.json"
NO_SUCH_PART, OWN_FORMAT = "the Hugging Face class has no such part", "keep the model in its own format"
REQUIRED: Any = object()  # the default of a field that gives the model its shape

# How training goes and how much memory it takes, which no config says and no vector depends on.
TRAINING = tuple(
    f"{side}.stack.{name}"
    for side in ("encoder", "decoder")
    for name in ("block.ffn.chunk", "variational", "initial_memory")
)
# A refusal names the part of the model, not the last field inside it.
_PART = re.compile(
    r"(?:encoder|decoder)(?:\.stack(?:\.share|\.block(?:\.(?:mixer(?:\.bias)?|cross|ffn))?)?|\.embed\.\w+|\.\w+)?"
)


@dataclass(frozen=True)
class Convert:
    """How a value is written there, in both directions."""

    read: Callable[[Any], Any]  # theirs -> ours
    write: Callable[[Any], Any]


NONE_AS_ZERO = Convert(lambda value: value or None, lambda value: value or 0)
NONE_AS_MINUS_ONE = Convert(lambda value: value if value > 0 else None, lambda value: value or -1)


@dataclass(frozen=True)
class Field:
    """A config field and the path of its value in the recipe; the same value stands `also` at other paths."""

    name: str
    path: str
    also: tuple[str, ...] = ()
    default: Any = REQUIRED
    codes: Mapping[Any, Any] | None = None  # their value -> ours; of two for one of ours the first is written
    convert: Convert | None = None
    alike: str | None = None  # the sentence that refuses another rate at another path

    def read(self, config: Mapping[str, Any]) -> Any:
        """Our value of the field; a KeyError names one that the config lacks and has no default."""
        value = config[self.name] if self.default is REQUIRED else config.get(self.name, self.default)
        if self.codes is None:
            return value if self.convert is None else self.convert.read(value)
        if value not in self.codes:
            needed = f"one of {', '.join(map(str, self.codes))} is supported"
            raise InputError(CONFIG, f"{self.name} {value}", needed, "choose a model with one of them")
        return self.codes[value]

    def write(self, recipe: Recipe) -> Any:
        """Their value of the field, or a refusal."""
        value = _get(recipe, self.path)
        if self.alike is not None:
            rates = (value, *(_get(recipe, path) for path in self.also))
            if len(set(rates)) > 1:
                given = f"rates of dropout {rates}"
                raise RecipeError(f"{recipe.name}.encoder", given, self.alike, "set all to the same rate")
        if self.codes is None:
            return value if self.convert is None else self.convert.write(value)
        theirs = {ours: code for code, ours in reversed(tuple(self.codes.items()))}
        if value not in theirs:
            raise RecipeError(f"{recipe.name}.{self.path}", value, NO_SUCH_PART, OWN_FORMAT)
        return theirs[value]


@dataclass(frozen=True)
class Constant:
    """A config field with one value, written always; where there is a sentence for it, another value is refused."""

    name: str
    value: Any
    needed: str | None = None
    todo: str = "choose a model with one of them"

    def check(self, config: Mapping[str, Any]) -> None:
        given = config.get(self.name)
        if self.needed is not None and given is not None and given != self.value:
            raise InputError(CONFIG, f"{self.name} {given}", self.needed, self.todo)


@dataclass(frozen=True)
class ConfigTable:
    """Every field of a family's config that stands for one value of the recipe.

    `blank` makes the family's recipe, with its objective and its training, before anything is filled in. `unsaid` are
    paths that may differ from what a config gives back: they are checked elsewhere, or change nothing.
    """

    blank: Callable[[], Recipe]
    fields: tuple[Field | Constant, ...]
    unsaid: tuple[str, ...] = ()

    def read(self, config: Mapping[str, Any]) -> Recipe:
        """The recipe that a config describes; settings that we have no part for are refused, not dropped."""
        recipe = self.blank()
        for field in self.fields:
            if isinstance(field, Constant):
                field.check(config)
                continue
            value = field.read(config)
            for path in (field.path, *field.also):
                parent, _, name = path.rpartition(".")
                setattr(_get(recipe, parent), name, value)
        return recipe

    def write(self, recipe: Recipe) -> dict[str, Any]:
        """The config of a recipe, or a refusal that names the first part the family does not have."""
        recipe = _unify(recipe)
        fields = self.fields
        config = {each.name: each.value if isinstance(each, Constant) else each.write(recipe) for each in fields}
        again = self.read(config)
        for name in ("encoder", "decoder"):
            for path in spec.diff(getattr(recipe, name), getattr(again, name), name):
                if not path.startswith((*TRAINING, *self.unsaid)):
                    raise absent(recipe, path)
        return config

    def derive(
        self,
        blank: Callable[[], Recipe],
        names: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        without: tuple[str, ...] = (),
    ) -> "ConfigTable":
        """The table of a family that differs in its recipe, in the `names` of some fields (its own -> of this table)
        and in some `defaults`, and has none of the fields `without`."""
        names, defaults = {name: own for own, name in (names or {}).items()}, defaults or {}
        fields: list[Field | Constant] = []
        for each in self.fields:
            if each.name not in without:
                named = replace(each, name=names.get(each.name, each.name))
                known = isinstance(named, Field) and named.name in defaults
                fields.append(replace(named, default=defaults[named.name]) if known else named)
        return replace(self, blank=blank, fields=tuple(fields))


def absent(recipe: Recipe, path: str, needed: str = NO_SUCH_PART) -> RecipeError:
    """The refusal of a part of the recipe that the family does not have."""
    match = _PART.match(path)
    part = match[0] if match else path
    return RecipeError(f"{recipe.name}.{part}", _get(recipe, part), needed, OWN_FORMAT)


def _get(recipe: Recipe, path: str) -> Any:
    """The value at a path, or a refusal where the recipe has another part there."""
    value: Any = recipe
    for name in path.split("."):
        if not hasattr(value, name):
            raise absent(recipe, path)
        value = getattr(value, name)
    return value


def _unify(recipe: Recipe) -> Recipe:
    """The same model in one spelling: one block for equal ones, None for what is as wide or as many as by default."""
    recipe = copy.deepcopy(recipe)
    for name in ("encoder", "decoder"):
        part = getattr(recipe, name)
        if part is not None:
            stack: Stack = part.stack
            if any(stack.block_at(layer) != stack.block_at(0) for layer in range(stack.depth)):
                raise absent(recipe, f"{name}.stack.block")
            stack.block = stack.block_at(0)
            own = {key: None if groups == stack.depth else groups for key, groups in spec.children(stack.share)}
            stack.share = Share(**own)  # pyright: ignore[reportArgumentType]
    if recipe.encoder.embed.width == recipe.encoder.width:
        recipe.encoder.embed.width = None
    return recipe
