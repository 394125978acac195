"""Our own format: recipe.json + model.safetensors + tokenizer.json."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.core.spec import Spec
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import tensors
from clozeworks.exchange.weights import sparse
from clozeworks.model import Model
from clozeworks.recipe import Recipe, assemble

RECIPE = "recipe.json"


def read_recipe(file: Path, parts: Iterable[type[Spec]] = ()) -> Recipe:
    """A recipe from JSON; `parts` are the caller's own classes."""
    try:
        data = read_json(file, dict)
    except FileNotFoundError:
        raise InputError(file, "no such file", "a recipe is needed", "check the path") from None
    except (ValueError, OSError) as error:
        raise InputError(file, f"unreadable ({error})", "a recipe in JSON is needed", "check the file") from None
    recipe = spec.from_dict(data, parts, where=str(file))
    if not isinstance(recipe, Recipe):
        raise InputError(file, f"a {type(recipe).__name__}", "a Recipe is needed", "give the file of a whole recipe")
    spec.check(recipe, recipe.name)
    return recipe


def write_recipe(file: Path, recipe: Recipe) -> None:
    file.write_text(json.dumps(spec.to_dict(recipe), indent=2) + "\n", encoding="utf-8")


def write(directory: Path, model: Model, recipe: Recipe) -> None:
    write_recipe(directory / RECIPE, recipe)
    tensors.write(directory / tensors.FILE, sparse.pack(tensors.state(model)))


def build(recipe: Recipe, weights: dict[str, Tensor], where: object) -> Model:
    """The model a recipe describes with these weights: what a file claims is compared before it is allocated."""
    with torch.device("meta"), _Uninitialized():
        tensors.compare(assemble(recipe), weights, where)
    model = assemble(recipe)
    tensors.assign(model, weights, where)
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            todo = "copy it again, or take an earlier checkpoint"
            raise InputError(where, f"NaN or infinity in {name}", "finite weights are needed", todo)
    return model.eval()


class _Uninitialized(TorchFunctionMode):
    """Lets `torch.nn.init` do nothing: on the meta device there is nothing to do, and torch imports its compiler for
    that, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return func(*args, **(kwargs or {}))


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """The directory's tokenizer, or None: a model works on ids without one."""
    return Tokenizer.load(directory) if Tokenizer.is_in(directory) else None
