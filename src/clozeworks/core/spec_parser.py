"""Parts as Python writes them, `Stream(length=128, streams=4)`, parsed to plain data. Nothing is run."""

import ast
from collections.abc import Collection, Mapping
from typing import Any

from clozeworks.core.errors import RecipeError

CONSTANTS = {"none": None, "true": True, "false": False}


def read(text: str, where: str, fields: Mapping[str, Collection[str]]) -> Any:
    """A part as a dict under its name, a tuple as a list, a bare lower-case word as a string.

    `fields` are those of every known part, in order: values without a name are refused with the names they lack.
    """
    try:
        return _data(ast.parse(text, mode="eval").body, where, fields)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if isinstance(error, RecipeError):
            raise
        reason = error.msg if isinstance(error, SyntaxError) else "it is too long or too deep"
        todo = "close the bracket" if "never closed" in reason else "write it as Part(field=value)"
        raise RecipeError(where, text[:60], reason, todo) from None


def _data(node: ast.expr, where: str, fields: Mapping[str, Collection[str]]) -> Any:
    match node:
        case ast.Name(name) if name[0].islower():
            return CONSTANTS.get(name, name)
        case ast.Name(name):
            return {"part": name}
        case ast.Call(ast.Name(name), positional, keywords):
            _by_name(name, positional, keywords, where, fields.get(name, ()))
            given = {str(word.arg): _data(word.value, f"{where}.{word.arg}", fields) for word in keywords}
            return {"part": name, **given}
        case ast.Tuple(items) | ast.List(items):
            return [_data(item, f"{where}.{index}", fields) for index, item in enumerate(items)]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        todo = "write a number, a word, a list or a part"
        raise RecipeError(where, ast.unparse(node)[:60], "a plain value is needed", todo) from None


def _by_name(
    part: str, positional: list[ast.expr], keywords: list[ast.keyword], where: str, fields: Collection[str]
) -> None:
    """Refuse values that do not say, each once, which field they are for."""
    names = [word.arg for word in keywords]
    for name in names:
        if name in (None, "part") or names.count(name) > 1:
            given = "**" if name is None else f"{name}="
            raise RecipeError(where, f"{part}({given}...)", "each field is given once, by its name", "change it")
    free = [field for field in fields if field not in names]
    if positional and fields:
        shown = [f"{field}={ast.unparse(value)}" for field, value in zip(free, positional, strict=False)]
        todo = f"write {part}({', '.join([*shown, *map(ast.unparse, keywords)])})"
        given = f"{part}({', '.join(map(ast.unparse, positional))})"
        raise RecipeError(where, given, "the fields of a part are given by name", todo)
