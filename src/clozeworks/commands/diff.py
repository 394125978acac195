"""clozeworks diff"""

from typing import Any

from clozeworks import spec
from clozeworks.commands import named
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import closing, columns, emit, screen
from clozeworks.spec import Spec


def run(options: Options) -> None:
    before, after = named.recipe(options.before), named.recipe(options.after)
    found = spec.diff(before, after)
    if options.json:
        emit({path: [spec.to_dict(old), spec.to_dict(new)] for path, (old, new) in found.items()})
        return
    console = screen()
    if set(found) <= {"name"}:
        console.print("no difference")
        return
    table = columns("field", before.name, after.name)
    for path, (old, new) in found.items():
        if path != "name":
            table.add_row(path, shown(old), shown(new))
    console.print(table)
    closing(console, None, f"clozeworks show {options.after}")


def shown(value: Any) -> str:
    """A value as one would write it in a recipe, fields that have their default left out."""
    if isinstance(value, Spec):
        fresh = _defaults(type(value))
        given = {name: item for name, item in spec.children(value) if name not in fresh or fresh[name] != item}
        inside = ", ".join(f"{name}={shown(item)}" for name, item in given.items())
        return f"{type(value).__name__}({inside})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shown, value)) + ")" if value else "()"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _defaults(part: type[Spec]) -> dict[str, Any]:
    import dataclasses

    found = {}
    for field in dataclasses.fields(part):  # pyright: ignore[reportArgumentType]
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found
