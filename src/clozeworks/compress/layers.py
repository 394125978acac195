"""Whole layers that a model does without."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from clozeworks.compress.data import Data
from clozeworks.compress.importance import of_blocks
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import blocks_of, choose, copy_recipe, join_blocks, one_way, parameters, stacks
from clozeworks.core.bounds import Count
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.bundle import Bundle
from clozeworks.nn.stack import Share, Stack
from clozeworks.recipe import Recipe


@dataclass(slots=True)
class DropLayers(Step):
    """`keep` layers stay, None: half of them; of a model with a decoder, so many on each side.

    `which` = alternate: layers evenly spread from the first on, of 12 every other one (Sanh et al. 2019, 3); top: those
    nearest to the words, so that the top ones go (Sajjad et al. 2020); importance: those without which the loss would
    rise most, I_l = E_x |dL(x) / dxi_l| with a gate xi_l on what layer l adds (`importance`). They keep their order.
    """

    name: ClassVar[str] = "layers"
    main: ClassVar[str | None] = "keep"
    keep: Count | None = None
    which: Literal["alternate", "top", "importance"] = "alternate"

    def apply(self, bundle: B, data: Data) -> B:
        """Choose the layers that stay, and number them anew."""
        recipe = copy_recipe(bundle)
        task = recipe.task
        if task is not None and task.reading.layers:
            where, given = f"{recipe.name}.{task.name}.reading", type(task.reading).__name__
            raise RecipeError(where, given, "the task reads layers by their numbers", "drop them before fine-tuning")
        for loss in recipe.objective.losses:
            if loss.decides:
                needed = "it reads layers by their numbers"
                raise RecipeError(f"{recipe.name}.{loss.name}", type(loss).__name__, needed, "drop layers before it")
        kept = {name: self._choose(bundle, data, name, stack.depth) for name, stack in stacks(recipe).items()}
        if all(len(own) == stacks(recipe)[name].depth for name, own in kept.items()):
            given, needed = self.keep, f"{recipe.name} has no more than {recipe.encoder.stack.depth}"
            raise InputError("layers", given, needed, "keep fewer")
        weights = parameters(bundle.model)
        for name, own in kept.items():
            weights = _renumber(weights, name, own)
            _keep(recipe, name, stacks(recipe)[name], own)
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights))

    def _choose(self, bundle: Bundle, data: Data, stack: str, depth: int) -> list[int]:
        """The layers that stay."""
        keep = min(-(-depth // 2) if self.keep is None else self.keep, depth)
        if self.which == "top":
            return list(range(keep))
        if self.which == "alternate":
            return [layer * depth // keep for layer in range(keep)]
        one_way(bundle.recipe, "measuring how much layers count")
        blocks = [bundle.model.get_submodule(f"{stack}.blocks.{layer}") for layer in range(depth)]
        scores = of_blocks(bundle, data, blocks)
        return sorted(sorted(range(depth), key=lambda layer: -scores[layer])[:keep])


def _keep(recipe: Recipe, name: str, stack: Stack, kept: list[int]) -> None:
    """The stack with these layers alone."""
    blocks, where = blocks_of(stack), f"{recipe.name}.{name}"
    given_width = stack.out_width(recipe.encoder.width)
    wide = [width for _, width in stack.layers(recipe.encoder.width)]
    shares = {
        part: _groups(where, part, groups, stack.depth, kept)
        for part in ("attention", "ffn", "bias")
        if (groups := getattr(stack.share, part)) is not None
    }
    stack.block, stack.depth, stack.share = tuple(blocks[layer] for layer in kept), len(kept), Share(**shares)
    for layer, (_, width) in zip(kept, stack.layers(recipe.encoder.width), strict=True):
        if width != wide[layer]:
            given, needed = f"without layers before it, layer {layer}", f"it reads width {wide[layer]}, not {width}"
            raise RecipeError(where, given, needed, "keep layers of one width")
    if stack.out_width(recipe.encoder.width) != given_width:
        raise RecipeError(where, f"layers {kept}", "they give another width than the whole stack", "keep the last one")


def _groups(where: str, part: str, groups: int, depth: int, kept: list[int]) -> int:
    """In how many groups the layers that stay share weights; groups of several sizes are refused."""
    sets = [layer * groups // depth for layer in kept]
    sizes = {sets.count(each) for each in sets}
    if len(sizes) > 1:
        given, needed = f"layers {kept}", f"of {groups} groups that share weights as many layers of each must stay"
        raise RecipeError(f"{where}.share.{part}", given, needed, "keep another number of layers")
    return len(set(sets))


def _renumber(weights: dict[str, Tensor], stack: str, kept: list[int]) -> dict[str, Tensor]:
    """Tensors of layers that stay, by their new numbers; the others, and those of dropped layers, by no name."""
    new = {layer: number for number, layer in enumerate(kept)}
    pattern = re.compile(rf"({re.escape(stack)}\.(?:back\.)?blocks\.)(\d+)(\..*)")
    renamed = {}
    for name, tensor in weights.items():
        match = pattern.fullmatch(name)
        if match is None:
            renamed[name] = tensor
        elif int(match[2]) in new:
            renamed[f"{match[1]}{new[int(match[2])]}{match[3]}"] = tensor
    return renamed
