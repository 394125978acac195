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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.stack import Share, Stack
from clozeworks.recipe import Recipe

CONFIG = "config.json"
NO_SUCH_PART, OWN_FORMAT = "the Hugging Face class has no such part", "keep the model in its own format"
REQUIRED: Any = object()  # the default of a field that gives the model its shape

# How training goes and how much memory it takes: no config says it, and no vector depends on it.
TRAINING = (
    "ffn.chunk",
    "stack.variational",
    "embed.dropped",
    "embed.frozen",
    "embed.word_dropout",
    "positions.deviation",
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
            return value if self.convert is None else self._convert(self.convert, value)
        if isinstance(value, list | dict) or value not in self.codes:
            needed = f"one of {', '.join(map(str, self.codes))} is supported"
            raise InputError(CONFIG, f"{self.name} {value}", needed, "choose a model with one of them")
        return self.codes[value]

    def _convert(self, convert: Convert, value: Any) -> Any:
        try:
            return convert.read(value)
        except (TypeError, ValueError, AttributeError):
            given, needed = f"{self.name} {value!r}", "a value of another kind is needed"
            raise InputError(CONFIG, given, needed, "mend the file, or download it again") from None

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
        for name, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder)):
            if part is not None:
                spec.check_types(part, f"{CONFIG}.{name}")
        return recipe

    def write(self, recipe: Recipe) -> dict[str, Any]:
        """The config of a recipe, or a refusal that names the first part the family does not have."""
        recipe = _unify(recipe)
        fields = self.fields
        config = {each.name: each.value if isinstance(each, Constant) else each.write(recipe) for each in fields}
        refuse_differences((recipe,), self.read(config), self.unsaid)
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


def refuse_differences(recipes: tuple[Recipe, ...], again: Recipe, unsaid: tuple[str, ...]) -> None:
    """Raise `RecipeError` for the first field of the model, but for those of training and `unsaid` ones, that a recipe
    as read `again` has from none of these, which are one model. All have to be in one spelling."""
    for name in ("encoder", "decoder"):
        first, *others = (spec.diff(getattr(recipe, name), getattr(again, name), name) for recipe in recipes)
        for path in first:
            if all(path in other for other in others) and not path.endswith(TRAINING) and not path.startswith(unsaid):
                raise absent(recipes[0], path)


def absent(recipe: Recipe, path: str, needed: str = NO_SUCH_PART) -> RecipeError:
    """The refusal of a field of the recipe that the family does not have; where the recipe has no such field either, of
    the part that stands in its place."""
    value, names = recipe, []
    for name in path.split("."):
        if name not in (inside := dict(spec.children(value))):
            break
        value, names = inside[name], [*names, name]
    return RecipeError(".".join((recipe.name, *names)), _shown(value), needed, OWN_FORMAT)


def _shown(value: object) -> object:
    """A part by its name: which of its fields is meant, a path says."""
    return type(value).__name__ if isinstance(value, Spec) else value


def _get(recipe: Recipe, path: str) -> Any:
    """The value at a path, or a refusal where the recipe has another part there."""
    value: Any = recipe
    for name in path.split("."):
        if not hasattr(value, name):
            raise absent(recipe, path)
        value = getattr(value, name)
    return value


def respell(recipe: Recipe) -> Recipe:
    """The same model in one spelling: a block for each layer, None for what is as wide or as many as by default, and
    the default of fields that are about a part which is not there."""
    recipe = copy.deepcopy(recipe)
    for part in (recipe.encoder, recipe.decoder):
        if part is not None:
            stack: Stack = part.stack
            stack.block = tuple(stack.block_at(layer) for layer in range(stack.depth))
            own = {key: None if groups == stack.depth else groups for key, groups in spec.children(stack.share)}
            stack.share = Share(**own)  # pyright: ignore[reportArgumentType]
            stack.initial_memory = stack.initial_memory if stack.memory else "empty"
    embed = recipe.encoder.embed
    embed.width = None if embed.width == recipe.encoder.width else embed.width
    embed.narrow = embed.narrow if embed.project or embed.width else "all"
    return recipe


def _unify(recipe: Recipe) -> Recipe:
    """The same model in one spelling, with one block for all layers."""
    recipe = respell(recipe)
    for name in ("encoder", "decoder"):
        part = getattr(recipe, name)
        if part is not None:
            first, *others = part.stack.block
            for layer, other in enumerate(others, 1):
                for path, values in spec.diff(first, other, f"{name}.stack.block").items():
                    given = f"{_shown(values[0])} in layer 0 and {_shown(values[1])} in layer {layer}"
                    raise RecipeError(f"{recipe.name}.{path}", given, "layers are alike there", OWN_FORMAT)
            part.stack.block = first
    return recipe
