"""Specs: small dataclasses that describe a part and build it.

A spec is data: comparable, printable, stored as JSON under its class name. Every subclass is a
`@dataclass(slots=True)`, so a misspelt field raises instead of being silently kept.
"""

import dataclasses
import functools
import importlib
import json
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Union

from clozeworks.core import spec_parser
from clozeworks.core.bounds import Bound, find_bound, numbers_in
from clozeworks.core.errors import RecipeError, suggest

__all__ = ["RecipeError", "Spec", "check", "diff", "from_dict", "set_path", "to_dict", "walk"]


class Spec:
    """Base of every part. Fields that several parts share (width) come from the parent at build time."""

    __slots__ = ()

    def check(self, where: str) -> None:
        """Raise `RecipeError` if this part cannot be built as it stands. Children are checked on their own."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in fields_of(type(self)):
            raise AttributeError(f"{type(self).__name__} has no field {name}; {suggest(name, fields_of(type(self)))}")
        object.__setattr__(self, name, value)


@functools.cache
def fields_of(part: type[Spec]) -> dict[str, Any]:
    """Field name to annotation, in order."""
    hints = typing.get_type_hints(part)
    return {field.name: hints[field.name] for field in dataclasses.fields(typing.cast(Any, part))}


@functools.cache
def bounds_of(part: type[Spec]) -> dict[str, Bound]:
    """Field name to the numbers it may have, of the fields that say so."""
    hints = typing.get_type_hints(part, include_extras=True)
    bounds = {name: find_bound(hints[name]) for name in fields_of(part)}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def suggest_value(part: Spec, name: str) -> str:
    """What to do about a number that a field cannot have."""
    default = next(field.default for field in dataclasses.fields(typing.cast(Any, part)) if field.name == name)
    shown = f"{default:g}" if isinstance(default, float) else default
    return "change it" if default is dataclasses.MISSING else f"{shown} is usual"


def children(value: object) -> Iterator[tuple[str, object]]:
    """The named values directly inside a spec or a tuple."""
    if isinstance(value, Spec):
        for name in fields_of(type(value)):
            yield name, getattr(value, name)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield str(index), item


def walk(spec: Spec, where: str = "") -> Iterator[tuple[str, Spec]]:
    """Every spec of the tree with its path, parents first."""
    yield where, spec
    stack: list[tuple[str, object]] = [(join(where, name), value) for name, value in children(spec)]
    for path, value in stack:
        if isinstance(value, Spec):
            yield from walk(value, path)
        elif isinstance(value, tuple):
            stack.extend((join(path, name), item) for name, item in children(value))


def join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def check(spec: Spec, where: str = "") -> None:
    """Types first, then numbers, then each part's own rules, those of a part before those about it; nothing has been
    allocated when this refuses."""
    check_types(spec, where)
    for path, part in walk(spec, where):
        for name, bound in bounds_of(type(part)).items():
            for place, value in numbers_in(getattr(part, name), join(path, name)):
                if not bound.holds(value):
                    raise RecipeError(place, value, f"{bound.describe(value)} is needed", suggest_value(part, name))
    for path, part in reversed(list(walk(spec, where))):
        part.check(path)


def check_types(spec: Spec, where: str = "") -> None:
    """Whether every field holds what its annotation says."""
    for path, part in walk(spec, where):
        for name, annotation in fields_of(type(part)).items():
            value = getattr(part, name)
            if not fits(value, annotation):
                needed = f"a value of type {describe(annotation)} is needed"
                raise RecipeError(join(path, name), repr(value), needed, "change this field")


def fits(value: object, annotation: Any) -> bool:
    """Whether a value is of the annotated type; an int is a float, a bool is not an int."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if annotation in (int, float):
        return isinstance(value, (int, float) if annotation is float else int) and not isinstance(value, bool)
    return annotation is Any or isinstance(value, annotation)


def describe(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(option) for option in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple:
        return "a list of " + describe(arguments[0])
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_dict(value: object) -> Any:
    """Plain JSON data; a spec becomes its fields under the name of its class."""
    if isinstance(value, Spec):
        return {"part": type(value).__name__} | {name: to_dict(item) for name, item in children(value)}
    if isinstance(value, tuple):
        return [to_dict(item) for item in value]
    return value


PART_MODULES = (
    "nn",
    "objectives",
    "tasks",
    "model",
    "optim",
    "starts",
    "recipe",
    "compress",
)  # of the library: all that hold parts


@functools.cache
def _import_parts() -> None:
    """Import every module that holds parts, so that a part is known by its name whoever asks, and in whatever order.

    Kernels hold none, and some of them need packages that are extras.
    """
    for name in PART_MODULES:
        module = importlib.import_module(f"clozeworks.{name}")
        for inner in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
            if ".kernels." not in inner.name:
                importlib.import_module(inner.name)


def known_parts(extra: Iterable[type[Spec]] = ()) -> dict[str, type[Spec]]:
    """The library's own finished parts by name, and those the caller hands over. No file ever chooses an import."""
    _import_parts()
    parts: dict[str, type[Spec]] = {}
    pending = list(Spec.__subclasses__())
    while pending:
        part = pending.pop()
        pending.extend(part.__subclasses__())
        # slots=True makes a second class; only the one its module exports counts.
        if part.__module__.startswith("clozeworks."):
            exported = getattr(sys.modules.get(part.__module__), part.__name__, None)
            if exported is part and dataclasses.is_dataclass(part) and _finished(part):
                parts[part.__name__] = part
    return parts | {part.__name__: part for part in extra}


def _finished(part: type[Spec]) -> bool:
    """Whether a part leaves nothing abstract: the base of a kind is none that a recipe can hold."""
    return not any(getattr(getattr(part, name, None), "__isabstractmethod__", False) for name in dir(part))


def kin(annotation: Any, known: dict[str, type[Spec]]) -> list[str]:
    """The parts that a field of this type takes; all of them where it takes any."""
    origin, options = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType, tuple):
        return sorted({name for option in options for name in kin(option, known)})
    if annotation is Any:
        return sorted(known)
    is_part = isinstance(annotation, type) and issubclass(annotation, Spec)
    return [name for name, part in known.items() if issubclass(part, annotation)] if is_part else []


OWN = " If it is your own class, pass it: load(path, parts=[...]), or --parts FILE"


def from_dict(data: Any, parts: Iterable[type[Spec]] = (), where: str = "recipe") -> Any:
    """The inverse of `to_dict`. `parts` are the caller's own spec classes, beside the library's."""
    return _from_dict(data, known_parts(parts), where, Any, OWN)


def _from_dict(data: Any, known: dict[str, type[Spec]], where: str, annotation: Any, hint: str = "") -> Any:
    """`annotation` is the type of the field, so that what is unknown there is answered with what would fit."""
    if isinstance(data, list):
        return tuple(
            _from_dict(item, known, join(where, str(index)), _item(annotation, index), hint)
            for index, item in enumerate(data)
        )
    if not isinstance(data, dict):
        return data
    name = data.get("part")
    if not isinstance(name, str):
        raise RecipeError(where, json.dumps(data, default=repr)[:60], "a part is named by its field 'part'", "add it")
    if name not in known:
        todo = suggest(name, kin(annotation, known) or known) + hint
        raise RecipeError(where, name, "no part of that name is known", todo)
    part = known[name]
    fields = fields_of(part)
    given = {
        key: _from_dict(value, known, join(where, key), fields.get(key, Any), hint)
        for key, value in data.items()
        if key != "part"
    }
    for key in given:
        if key not in fields:
            todo = suggest(key, fields) if fields else "leave it out"
            raise RecipeError(join(where, key), repr(given[key]), f"{name} has no such field", todo)
    try:
        return part(**given)
    except TypeError as error:
        raise RecipeError(where, name, str(error), "give every field that has no default") from None


# --- differences and edits ----------------------------------------------------------------------------------------


def diff(before: object, after: object, where: str = "") -> dict[str, tuple[Any, Any]]:
    """What changed, as {path: (before, after)}; parts of different classes are reported whole."""
    same_shape = type(before) is type(after) and (
        isinstance(before, Spec) or (isinstance(before, tuple) and len(before) == len(typing.cast(tuple, after)))
    )
    if not same_shape:
        return {} if before == after else {where: (before, after)}
    changes: dict[str, tuple[Any, Any]] = {}
    for (name, old), (_, new) in zip(children(before), children(after), strict=True):
        changes.update(diff(old, new, join(where, name)))
    return changes


def set_path(spec: Spec, path: str, text: str) -> None:
    """Change one field by its path, the value given as text: `set_path(r, "encoder.stack.depth", "4")`."""
    *parents, last = path.split(".")
    target: Any = spec
    annotation: Any = type(spec)
    walked = ""
    for name in [*parents, last]:
        options = dict(children(target))
        if name not in options:
            needed = f"{walked or type(spec).__name__} has no field {name or 'without a name'}"
            todo = suggest(name, options) if options else f"it is {target!r}; set {walked} itself"
            raise RecipeError(path, text, needed, todo)
        annotation = fields_of(type(target))[name] if isinstance(target, Spec) else _item(annotation, int(name))
        target, walked = options[name], join(walked, name)
    value = _read(text, annotation, path)
    if not fits(value, annotation):
        needed = f"a value of type {describe(annotation)} is needed"
        raise RecipeError(path, text or "nothing", needed, _advice(text, value, annotation))
    replace_at(spec, path, value)


def replace_at(spec: Spec, path: str, value: object) -> None:
    """Put a value at a path, also where that is an item of a tuple."""
    parent, _, last = path.rpartition(".")
    holder: Any = spec
    for name in parent.split(".") if parent else ():
        holder = dict(children(holder))[name]
    if isinstance(holder, Spec):
        setattr(holder, last, value)
    else:  # a tuple is rebuilt in its parent
        items = tuple(value if name == last else item for name, item in children(holder))
        replace_at(spec, parent, items)


def _advice(text: str, value: object, annotation: Any) -> str:
    """What to write instead of a value of the wrong type."""
    if isinstance(value, Spec) and fits((value,), annotation):
        return f"write [{text}]"
    names = kin(annotation, known_parts())
    return suggest(re.split(r"\W", text, maxsplit=1)[0], names) if names else "change the value"


def _item(annotation: Any, index: int) -> Any:
    """The type of one item of a tuple."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        annotation = next((each for each in typing.get_args(annotation) if typing.get_origin(each) is tuple), Any)
    arguments = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    if not arguments:
        return Any
    return arguments[0] if arguments[-1] is Ellipsis else arguments[min(index, len(arguments) - 1)]


def _read(text: str, annotation: Any, where: str) -> Any:
    """Text as the annotated type wants it: JSON where it parses (None for null), a part such as `MaskSpans` or
    `DocSentences(length=512)`, a bare word otherwise."""
    known = known_parts()
    try:
        value = json.loads({"none": "null", "true": "true", "false": "false"}.get(text.lower(), text))
    except (ValueError, RecursionError):
        is_written = re.match(r"[A-Z]\w*\s*(\(|$)|[(\[]", text) and not fits(text, annotation)
        fields = {name: list(fields_of(part)) for name, part in known.items()} if is_written else {}
        value = spec_parser.read(text, where, fields) if is_written else text
    value = _from_dict(value, known, where, annotation) if isinstance(value, (dict, list)) else value
    if not fits(value, annotation) and fits(text, annotation):
        return text
    if isinstance(value, float) and value.is_integer() and not fits(value, annotation):
        return int(value)  # 1e4 is a fine way to write ten thousand steps
    return value
