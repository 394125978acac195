"""Inner units of feed-forward layers that a model does without."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor

from clozeworks.compress.data import Data
from clozeworks.compress.importance import by_gradient, select
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import (
    Place,
    alike,
    choose,
    copy_recipe,
    find_part,
    join_blocks,
    layers,
    one_way,
    parameters,
    stacks,
)
from clozeworks.core.bounds import Count, Part
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.nn.ffn import FeedForwardLayer
from clozeworks.recipe import Recipe


@dataclass(slots=True)
class PruneFeedForward(Step):
    """The least important `share` of all inner units is cut: rows of W_1 and b_1, columns of W_2.

    I_u = E_x |dL(x) / dxi_u| (`by` = gradient; `importance`), or without any data |W_1,u| |W_2,u| (magnitude), which a
    rescaling of the two leaves as it is. `scope` = global: the least of all layers together, after those of each layer
    have been divided by their length; layer: as many of each. The units that stay in a layer are rounded up to a
    `multiple`, which matrix products like. Layers that share weights lose the same units. What is left computes what
    the whole model would with the others' outputs at 0.
    """

    name: ClassVar[str] = "ffn"
    main: ClassVar[str | None] = "share"
    share: Part = 0.5
    by: Literal["gradient", "magnitude"] = "gradient"
    scope: Literal["global", "layer"] = "global"
    multiple: Count = 8

    def apply(self, bundle: B, data: Data) -> B:
        """Score every inner unit, choose, and cut rows and columns."""
        recipe, model = copy_recipe(bundle), bundle.model
        groups = list(_groups(recipe).values())
        parts = [cast(FeedForwardLayer, find_part(model, place)) for group in groups for place in group]
        if self.by == "gradient":
            said = iter(by_gradient(bundle, data, [(part.down, part.down.in_features) for part in parts]))
        else:
            said = iter([size(part) for part in parts])
        scores = [torch.stack([next(said) for _ in group]).sum(0) for group in groups]
        kept = select(scores, self.share, self.scope, self.multiple)
        if sum(map(len, kept)) == sum(map(len, scores)):
            needed = f"of {sum(map(len, scores)):,} inner units, in multiples of {self.multiple}, that is none"
            raise InputError(f"{recipe.name}, inner units", self.share, needed, "take more of them, or none")
        weights = parameters(model)
        for group, own in zip(groups, kept, strict=True):
            for place in group:
                _cut(recipe, weights, place, torch.tensor(own))
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights))


def _groups(recipe: Recipe) -> dict[tuple[str, int], list[Place]]:
    """The feed-forward layers, those together that share weights; refused where there is none."""
    one_way(recipe, "cutting inner units")
    together = {name: alike(stack, "ffn") for name, stack in stacks(recipe).items()}
    groups: dict[tuple[str, int], list[Place]] = {}
    for stack, layer, block in layers(recipe):
        if block.ffn is not None:
            groups.setdefault((stack, together[stack][layer]), []).append(Place(stack, layer, "ffn"))
    if not groups:
        needed = "no layer has a feed-forward part"
        raise RecipeError(f"{recipe.name}.encoder.stack.block.ffn", None, needed, "use another step: layers, vocab")
    return groups


def size(part: FeedForwardLayer) -> Tensor:
    """|W_1,u| |W_2,u| of each unit."""
    return (part.up.weight.detach().norm(dim=1) * part.down.weight.detach().norm(dim=0)).cpu()


def _cut(recipe: Recipe, weights: dict[str, Tensor], place: Place, kept: Tensor) -> None:
    blocks = stacks(recipe)[place.stack].block
    assert isinstance(blocks, tuple)
    ffn = blocks[place.layer].ffn
    assert ffn is not None
    ffn.inner = len(kept)
    for name, axis in (("up.weight", 0), ("up.bias", 0), ("down.weight", 1)):
        weights[f"{place.name}.{name}"] = weights[f"{place.name}.{name}"].index_select(axis, kept)
