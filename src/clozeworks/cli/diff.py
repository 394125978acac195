"""clozeworks diff"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from clozeworks.cli.arguments import RECIPE, JsonOptions, argument
from clozeworks.core import spec
from clozeworks.core.spec import Spec


@dataclass(kw_only=True)
class Options(JsonOptions):
    """Compare two recipes, field by field

    clozeworks diff bert_base roberta_base
    """

    before: str = argument("A", RECIPE)
    after: str = argument("B", "another one")


def run(options: Options) -> None:
    """Print what the second recipe changes of the first."""
    from clozeworks.cli import named
    from clozeworks.screen.console import closing, columns, emit, screen

    before, after = named.recipe(options.before), named.recipe(options.after)
    if options.json:
        changes = spec.diff(before, after)
        emit({path: [spec.to_dict(old), spec.to_dict(new)] for path, (old, new) in changes.items()})
        return
    changes = differences(before, after)
    console = screen()
    if set(changes) <= {"name"}:
        console.print("no difference")
        return
    table = columns("field", before.name, after.name)
    for path, (old, new) in changes.items():
        if path != "name":
            table.add_row(path, shown(old), shown(new))
    console.print(table)
    closing(console, None, f"clozeworks show {options.after}")


def differences(before: Spec, after: Spec) -> dict[str, tuple[Any, Any]]:
    """What changed, as {path: (before, after)}; where one part became a tuple of its kind, field by field, with one
    value if all have the same."""
    changed = {}
    for path, (old, new) in spec.diff(before, after).items():
        if not isinstance(old, Spec) or not isinstance(new, tuple) or {type(part) for part in new} != {type(old)}:
            changed[path] = old, new
            continue
        for below, (was, now) in _differ(old, new).items():
            changed[f"{path}.{below}"] = was, now[0] if all(each == now[0] for each in now) else now
    return changed


def _differ(first: Spec, parts: tuple[Spec, ...]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Where any of several parts differs from a first one: what that has there, and what each of them has."""
    differences = [spec.diff(first, part) for part in parts]
    values = {}
    for path in dict.fromkeys(path for each in differences for path in each):
        was = next(each[path][0] for each in differences if path in each)
        values[path] = was, tuple(each[path][1] if path in each else was for each in differences)
    return values


def shown(value: Any) -> str:
    """A value as one would write it in a recipe, fields that have their default left out."""
    if isinstance(value, Spec):
        fresh = _defaults(type(value))
        given = {name: item for name, item in spec.children(value) if name not in fresh or fresh[name] != item}
        inside = ", ".join(f"{name}={shown(item)}" for name, item in given.items())
        return f"{type(value).__name__}({inside})"
    if isinstance(value, tuple):
        if len(value) > 2 and isinstance(value[0], Spec):
            return _alike(value)
        return "(" + ", ".join(map(shown, value)) + ")" if value else "()"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _alike(parts: tuple[Spec, ...]) -> str:
    """Several parts as the first, and what each has where they differ: `3 x Window(left=1) with left=1, 2, 4`."""
    different = _differ(parts[0], parts)
    if "" in different:  # parts of another kind
        return "(" + ", ".join(map(shown, parts)) + ")"
    rows = [f"{path}={', '.join(map(shown, each))}" for path, (_, each) in different.items()]
    return f"{len(parts)} x {shown(parts[0])}" + (f" with {'; '.join(rows)}" if rows else "")


def _defaults(part: type[Spec]) -> dict[str, Any]:
    usual = {}
    for field in dataclasses.fields(part):  # pyright: ignore[reportArgumentType]
        if field.default is not dataclasses.MISSING:
            usual[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            usual[field.name] = field.default_factory()
    return usual
