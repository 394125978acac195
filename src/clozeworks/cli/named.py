"""What users name on the command line: recipes, prepared directories, models, files with parts of their own."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

from clozeworks.cli.paths import existing
from clozeworks.core import spec
from clozeworks.core.errors import InputError, suggest
from clozeworks.core.spec import Spec
from clozeworks.exchange import files
from clozeworks.exchange.bundle import hub_hint
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.recipe import Recipe
from clozeworks.recipes import named as by_name
from clozeworks.recipes import recipe as fresh


def recipe(text: str, changes: Sequence[str] = ()) -> Recipe:
    """A name, a recipe.json (or the directory of one), or file.py:function, with fields changed."""
    return changed(_recipe(text), changes)


def changed(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with each PATH=VALUE set, checked."""
    for change in changes:
        put(recipe, change)
    spec.check(recipe, recipe.name)
    return recipe


def put(recipe: Recipe, change: str) -> None:
    """Set one PATH=VALUE."""
    path, equals, value = (text.strip() for text in change.partition("="))
    if not equals or not path:
        raise InputError("--set", change or "nothing", "PATH=VALUE is needed", "for example: --set train.steps=500")
    spec.set_path(recipe, path, value)


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
    specs = [part for part in own if part.__module__ == module.__name__]
    if not specs:
        raise InputError(file, "no part in it", "a dataclass that is a Spec is needed", "name the file of your parts")
    return specs


def _module(file: Path) -> ModuleType:
    """A file that the user named runs as it would if they had run it; errors in it are theirs to read."""
    path = Path(existing(file, "a Python file"))
    source = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    if source is None or source.loader is None:
        raise InputError(file, "not a Python file", "a file that ends in .py is needed", "check it")
    module = importlib.util.module_from_spec(source)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    source.loader.exec_module(module)
    return module


def model(
    path: str, own_parts: str | None = None, allow_pickle: bool = False, device: str | None = None
) -> TextEncoder:
    """A run, a model directory, or a Hugging Face directory; on a device where one is given."""
    if device is not None:
        check_device(device)
    place = existing(path, "a run, a model or a Hugging Face directory", hub_hint(path))
    encoder = load(place, parts(own_parts), allow_pickle)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in (None, "cpu"):
        encoder.model.to(device)
    return encoder


def check_device(name: str) -> None:
    """Refuse what is no device of this machine."""
    if name == "auto":
        return
    try:
        torch.zeros(1, device=name).item()  # which a device without numbers, meta, cannot do
    except (RuntimeError, AssertionError) as error:
        given = f"{name} ({str(error).splitlines()[0]})"
        raise InputError("--device", given, "a device of this machine is needed", "see clozeworks doctor") from None


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE, several of them."""
    values = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            example = "text=review" if option == "--columns" else "train.learning_rate=1e-4"
            raise InputError(option, text or "nothing", "NAME=VALUE is needed", f"for example: {option} {example}")
        values[name] = value
    return values


def weighted(texts: Sequence[str]) -> list[tuple[Path, float]]:
    """Directories with their weights, `A:0.7 B:0.3`; a colon that belongs to an existing path is part of it."""
    directories = []
    for text in texts:
        path, colon, number = text.rpartition(":")
        if not colon or Path(text).exists():
            directories.append((existing(text, "a prepared directory"), 1.0))
            continue
        try:
            weight = float(number)
        except ValueError:
            needed = "a number is needed after the colon"
            raise InputError(f"--data {text}", number, needed, "write for example DIR:0.3") from None
        directories.append((existing(path, "a prepared directory"), weight))
    return directories
