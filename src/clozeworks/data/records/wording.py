"""How messages speak of numbers and values."""

from typing import Any


def pluralize(count: int, noun: str, plural: str | None = None) -> str:
    """1 file, 2 files, 3 copies."""
    plural = plural or (noun[:-1] + "ies" if noun.endswith("y") else noun + "s")
    return f"{count:,} {noun if count == 1 else plural}"


def describe(value: Any) -> str:
    """What kind of value it is."""
    name = type(value).__name__
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    if isinstance(value, list | tuple) and value:
        return f"{article} {name} of {' and '.join(sorted({type(item).__name__ for item in value}))}"
    return name if name == "bytes" or value is None else f"{article} {name}"
