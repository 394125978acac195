"""What users name on the command line: recipes, prepared directories, models, files with parts of their own."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from clozeworks.cli.paths import existing
from clozeworks.core import spec
from clozeworks.core.errors import InputError, suggest
from clozeworks.core.spec import Spec
from clozeworks.exchange import files
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.recipe import Recipe
from clozeworks.recipes import named as by_name
from clozeworks.recipes import recipe as fresh


def recipe(text: str, changes: Sequence[str] = ()) -> Recipe:
    """A name, a recipe.json (or the directory of one), or file.py:function, with fields changed."""
    return changed(_recipe(text), changes)


def changed(found: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with each PATH=VALUE set, checked."""
    for change in changes:
        put(found, change)
    spec.check(found, found.name)
    return found


def put(found: Recipe, change: str) -> None:
    """Set one PATH=VALUE."""
    path, equals, value = (text.strip() for text in change.partition("="))
    if not equals or not path:
        raise InputError("--set", change or "nothing", "PATH=VALUE is needed", "for example: --set train.steps=500")
    spec.set_path(found, path, value)


def _recipe(text: str) -> Recipe:
    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _called(Path(file), function)
    if text in by_name():
        return by_name()[text]()
    if text.endswith(".py"):
        raise InputError(text, "a Python file", "a function of it is needed", f"write {text}:my_recipe")
    path = Path(text)
    if path.is_dir():
        return files.read_recipe(path / files.RECIPE)
    if path.exists() or path.suffix == ".json" or len(path.parts) > 1:
        return files.read_recipe(existing(text, "a recipe"))
    return fresh(text)  # which says what is near


def _called(file: Path, function: str) -> Recipe:
    module = _module(file)
    own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    if function not in own:
        raise InputError(file, function, "it has no such function", suggest(function, own) if own else "write it")
    made = getattr(module, function)()
    if not isinstance(made, Recipe):
        raise InputError(f"{file}:{function}", f"a {type(made).__name__}", "a Recipe is needed", "return one")
    return made


def parts(file: str | None) -> list[type[Spec]]:
    """The specs that a file of the user's defines."""
    if file is None:
        return []
    module = _module(Path(file))
    own = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Spec)]
    found = [part for part in own if part.__module__ == module.__name__]
    if not found:
        raise InputError(file, "no part in it", "a dataclass that is a Spec is needed", "name the file of your parts")
    return found


def _module(file: Path) -> ModuleType:
    """A file that the user named runs as it would if they had run it; errors in it are theirs to read."""
    path = Path(existing(file, "a Python file"))
    found = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    if found is None or found.loader is None:
        raise InputError(file, "not a Python file", "a file that ends in .py is needed", "check it")
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


def model(path: str, own_parts: str | None = None, allow_pickle: bool = False) -> TextEncoder:
    """A run, a model directory, or a Hugging Face directory."""
    return load(existing(path, "a run, a model or a Hugging Face directory"), parts(own_parts), allow_pickle)


def weighted(texts: Sequence[str]) -> list[tuple[Path, float]]:
    """Directories with their weights, `A:0.7 B:0.3`; a colon that belongs to an existing path is part of it."""
    found = []
    for text in texts:
        path, colon, number = text.rpartition(":")
        if not colon or Path(text).exists():
            found.append((existing(text, "a prepared directory"), 1.0))
            continue
        try:
            weight = float(number)
        except ValueError:
            raise InputError(
                f"--data {text}", number, "a number is needed after the colon", "write for example DIR:0.3"
            ) from None
        found.append((existing(path, "a prepared directory"), weight))
    return found
