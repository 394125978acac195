"""Random recipes: a named one, tiny, with some of its fields drawn anew by what their types take.

Parts are found by their types among all that the library knows, so that a part added later is drawn like the others.
"""

import copy
import dataclasses
import functools
import random
import types
import typing
from typing import Any, Literal, Union

from clozeworks.core import spec
from clozeworks.core.bounds import Bound
from clozeworks.core.spec import Spec
from clozeworks.recipe import Recipe
from clozeworks.recipes import named
from tests.test_golden import LENGTH, shrink

# What makes a case slow, or decides nothing about a composition.
FIXED = {
    "name", "steps", "batch_tokens", "micro_tokens", "phases", "precision", "parallel", "save_every", "evaluate_every",
    "vocab", "finetune", "pooling", "keep", "compile", "distil", "copies",
}  # fmt: skip
# Numbers that go together at the width of these recipes, where any would mostly be refused.
USUAL: dict[str, tuple[Any, ...]] = {
    "length": (LENGTH,),
    "width": (None, 16, 32),
    "depth": (1, 2, 3, 4),
    "heads": (1, 2, 4),
    "groups": (1, 2, 4),
    "inner": (16, 64),
    "cutoffs": ((40, 120), (100,)),
    "streams": (2, 4, 8),
    "reuse": (12,),
    "shape": ((4, 8), (8, 8)),
    "widths": (None, (8, 24), (16, 16)),
    "filters": (((1, 8), (3, 8)),),
    "hidden": (16, 32),
    "order": (3,),
    "memory": (0, 0, 5, LENGTH),
    "limit": (9, 40),
    "samples": (None, 50),
    "offset": (0, 2),
    "learning_rate": (1e-2,),
    "warmup": (2,),
    "eps": (1e-12, 1e-5),
    "init": (0.02, 0.1),
    "weight": (1.0, 0.5),
    "deviation": (None, 0.02),
    "positions": (4, 20),
    "seed": (0, 7),
}
COUNTS = (1, 2, 3, 4, 6, 8, 16)
RATES = (0.0, 0.1, 0.3)


@functools.cache
def known() -> dict[str, type[Spec]]:
    return spec.known_parts()


@functools.cache
def _kinds() -> dict[str, set[type[Spec]]]:
    """The parts that each named recipe has."""
    return {name: {type(part) for _, part in spec.walk(make())} for name, make in named().items()}


def draw_recipe(seed: int, attempt: int = 0) -> Recipe:
    """A recipe of this seed, good or not: one part, another with each seed, and a few fields are drawn."""
    draw = random.Random(f"{seed}.{attempt}")
    wanted = known()[sorted(known())[seed % len(known())]]
    with_it = [name for name, kinds in _kinds().items() if wanted in kinds]
    choose = draw.choice(with_it) if with_it and draw.random() < 0.5 else draw.choice(list(named()))
    recipe = shrink(named()[choose]())
    recipe.name = f"fuzz_{seed}"
    places = [place for place in _places(recipe) if wanted in _options(place[2])]
    if places and draw.random() < 0.8:
        owner, name, annotation = draw.choice(places)
        part = _part(wanted, draw, 0)
        setattr(owner, name, _beside(getattr(owner, name), (part,), draw) if _is_tuple(annotation) else part)
    for _ in range(draw.choice((0, 1, 1, 2, 3, 4))):
        places = _places(recipe)
        parts = [place for place in places if _options(place[2])]
        owner, name, annotation = draw.choice(parts if draw.random() < 0.5 else places)
        value = _value(name, annotation, draw, 0)
        setattr(owner, name, _beside(getattr(owner, name), value, draw) if _is_tuple(annotation) else value)
    recipe.objective.segments.length = LENGTH
    recipe.train.batch_tokens = LENGTH * max(8, getattr(recipe.objective.segments, "streams", 0))
    return copy.deepcopy(recipe)


def _beside(before: object, drawn: tuple[Any, ...], draw: random.Random) -> tuple[Any, ...]:
    """What is drawn, or beside it what was there."""
    return (*before, *drawn) if isinstance(before, tuple) and draw.random() < 0.5 else drawn


def _is_tuple(annotation: Any) -> bool:
    arguments = typing.get_args(_plain(annotation))
    return typing.get_origin(_plain(annotation)) is tuple and arguments[-1] is Ellipsis


def _places(recipe: Recipe) -> list[tuple[Spec, str, Any]]:
    """Every field that may be drawn: whose, its name and its type."""
    fields: list[tuple[Spec, str, Any]] = []
    for _, part in spec.walk(recipe):
        hints = typing.get_type_hints(type(part), include_extras=True)
        fields += [(part, name, hints[name]) for name in spec.fields_of(type(part)) if name not in FIXED]
    return fields


def _options(annotation: Any) -> set[type[Spec]]:
    """The parts that a field of this type takes, alone or in a tuple."""
    return {known()[name] for name in spec.kin(_plain(annotation), known())}


def _plain(annotation: Any) -> Any:
    """A type without its bounds."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def _part(kind: type[Spec], draw: random.Random, depth: int) -> Spec:
    """One of a kind: what has a default mostly keeps it."""
    hints = typing.get_type_hints(kind, include_extras=True)
    required = {field.name for field in _fields(kind) if _lacks_default(field)}
    given = {
        name: _value(name, hints[name], draw, depth + 1)
        for name in spec.fields_of(kind)
        if name in required or (name not in FIXED and draw.random() < 0.3)
    }
    return kind(**given)


def _fields(kind: type[Spec]) -> tuple[Any, ...]:
    return dataclasses.fields(typing.cast(Any, kind))


def _lacks_default(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(name: str, annotation: Any, draw: random.Random, depth: int) -> Any:
    """A value of this type; now and then a number that the field cannot have."""
    origin, arguments = typing.get_origin(_plain(annotation)), typing.get_args(_plain(annotation))
    usual = [value for value in USUAL.get(name, ()) if spec.fits(value, _stripped(annotation))]
    if usual and draw.random() < 0.9:
        return draw.choice(usual)
    if origin in (Union, types.UnionType):
        options = [each for each in arguments if each is not type(None) or depth < 6]
        return _value(name, draw.choice(options), draw, depth)
    if origin is Literal:
        return draw.choice(arguments)
    if origin is tuple:
        items = [arguments[0]] * draw.choice((1, 1, 2, 3)) if arguments[-1] is Ellipsis else arguments
        return tuple(_value(name, item, draw, depth) for item in items)
    return _single(name, annotation, draw, depth)


def _single(name: str, annotation: Any, draw: random.Random, depth: int) -> Any:
    """A number, a word, nothing or a part."""
    kind = _plain(annotation)
    bound = next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Bound)), None)
    if kind is bool:
        return draw.random() < 0.5
    if kind is type(None):
        return None
    if kind is str:
        return "drawn"
    if kind in (int, float) and bound is not None and draw.random() < 0.04:
        return kind(bound.least - 1)
    if kind is int:
        return draw.choice([count for count in COUNTS if bound is None or bound.holds(count)] or [8, 32])
    if kind is float:
        return draw.choice([rate for rate in RATES if bound is None or bound.holds(rate)] or [1.0])
    options = sorted(spec.kin(kind, known()))
    return _part(known()[draw.choice(options)], draw, depth)


def _stripped(annotation: Any) -> Any:
    """A type without the bounds inside it."""
    origin, arguments = typing.get_origin(_plain(annotation)), typing.get_args(_plain(annotation))
    if origin in (Union, types.UnionType):
        return Union[tuple(_stripped(each) for each in arguments)]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(each if each is Ellipsis else _stripped(each) for each in arguments)]  # pyright: ignore[reportInvalidTypeArguments]
    return _plain(annotation)
