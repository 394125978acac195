"""One set of weights for several layers."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, join_blocks, parameters, stacks
from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError


@dataclass(slots=True)
class ShareLayers(Step):
    """Layers share their weights in `groups` of equal size, all of them in one (Lan et al. 2019, 3.1).

    W_group = mean of W_l over the layers l of a group

    A start and no more: the mean of layers computes what none of them did, so that training or distillation has to
    follow. Only the file becomes smaller; every layer is computed as before.
    """

    name: ClassVar[str] = "share"
    main: ClassVar[str | None] = "groups"
    groups: Count = 1

    def apply(self, bundle: B, data: Data) -> B:
        """Put the mean of each group into its first layer, which the others then share."""
        recipe, weights = copy_recipe(bundle), parameters(bundle.model)
        for name, stack in stacks(recipe).items():
            where, own = f"{recipe.name}.{name}.share", (stack.share.attention, stack.share.ffn)
            if all(groups is not None and groups <= self.groups for groups in own):
                needed = f"its layers share {own[0]} sets of weights already"
                raise RecipeError(where, self.groups, needed, "use fewer groups, or leave it out")
            if self.groups >= stack.depth:
                needed = f"each of {stack.depth} layers would have its own"
                raise RecipeError(where, self.groups, needed, "use fewer groups")
            stack.share.attention = stack.share.ffn = self.groups
            if stack.depth % self.groups == 0:
                _average(weights, name, stack.depth, stack.depth // self.groups)
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights))


def _average(weights: dict[str, torch.Tensor], stack: str, depth: int, size: int) -> None:
    """Put the mean over each `size` layers into all of them."""
    for way in ("blocks", "back.blocks"):
        for first in range(0, depth, size):
            names = [f"{stack}.{way}.{layer}." for layer in range(first, first + size)]
            for name in [name for name in weights if name.startswith(names[0])]:
                rest = name.removeprefix(names[0])
                tensors = [weights[each + rest] for each in names if each + rest in weights]
                if len({tensor.shape for tensor in tensors}) == 1:  # others the recipe refuses by their shapes
                    mean = torch.stack(tensors).mean(0)
                    weights.update({each + rest: mean for each in names})
