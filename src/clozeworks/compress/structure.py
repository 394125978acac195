"""Layers of a recipe one by one, and their weights by name: what every structural step changes."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.bundle import Bundle
from clozeworks.model import Model
from clozeworks.nn.block import Block
from clozeworks.nn.stack import Stack
from clozeworks.recipe import Recipe, assemble


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part stands: its stack (`encoder.stack`), its layer, and its path in the block, in recipe and model."""

    stack: str
    layer: int
    path: str

    @property
    def name(self) -> str:
        """That of its module."""
        return f"{self.stack}.blocks.{self.layer}.{self.path}"


def copy_recipe(bundle: Bundle) -> Recipe:
    """The recipe to change, a block for each layer (`join_blocks` undoes it); refused where weights are int8."""
    if any(parameter.dtype == torch.int8 for parameter in bundle.model.parameters()):
        needed = "whole numbers have scales of their own, and are neither cut nor averaged"
        raise InputError(bundle.recipe.name, "weights in int8", needed, "take this step before int8")
    recipe = copy.deepcopy(bundle.recipe)
    for stack in stacks(recipe).values():
        stack.block = tuple(copy.deepcopy(stack.block_at(layer)) for layer in range(stack.depth))
    return recipe


def stacks(recipe: Recipe) -> dict[str, Stack]:
    """The stacks of a recipe by their paths."""
    return {
        f"{side}.stack": part.stack
        for side, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder))
        if part is not None
    }


def blocks_of(stack: Stack) -> tuple[Block, ...]:
    assert isinstance(stack.block, tuple)
    return stack.block


def join_blocks(recipe: Recipe) -> None:
    """One block where all layers are alike, or the shortest cycle of them."""
    for stack in stacks(recipe).values():
        blocks = blocks_of(stack)
        cycle = next(
            length for length in range(1, len(blocks) + 1)
            if not len(blocks) % length and all(block == blocks[at % length] for at, block in enumerate(blocks))
        )  # fmt: skip
        stack.block = blocks[0] if cycle == 1 else blocks[:cycle]


def one_way(recipe: Recipe, step: str) -> None:
    """Refuse stacks that are two: their layers have twins."""
    for path, stack in stacks(recipe).items():
        if stack.directions != 1:
            needed = f"{step} would have to cut both directions alike, which it cannot"
            raise RecipeError(f"{recipe.name}.{path}", type(stack).__name__, needed, "use another step")


def alike(stack: Stack, *parts: str) -> list[int]:
    """Of each layer the number of its group: layers of one group share weights of these parts, and have one shape."""
    group = list(range(stack.depth))
    for part in parts:
        shared = getattr(stack.share, part)
        size = stack.depth // shared if shared else 1
        for layer in range(stack.depth):
            first, second = group[layer - layer % size], group[layer]
            group = [first if each == second else each for each in group]
    return group


def parameters(model: Model) -> dict[str, Tensor]:
    """Every tensor by all of its names: that of a shared one in each layer."""
    return {name: value.detach().cpu() for name, value in model.named_parameters(remove_duplicate=False)}


def choose(recipe: Recipe, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those that the model of a recipe has, each shared one once; a recipe that its own parts refuse is refused."""
    spec.check(recipe, recipe.name)
    with torch.device("meta"):
        wanted = [name for name, _ in assemble(recipe).named_parameters()]
    return {name: weights[name].contiguous() for name in wanted if name in weights}


def find_part(model: Model, place: Place) -> nn.Module:
    return model.get_submodule(place.name)


def layers(recipe: Recipe) -> Iterator[tuple[str, int, Block]]:
    """Stack, layer and block of every layer."""
    for name, stack in stacks(recipe).items():
        for layer, block in enumerate(blocks_of(stack)):
            yield name, layer, block
