"""Heads of attention that a model does without."""

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
from clozeworks.core.bounds import Part
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import replace_at, walk
from clozeworks.model import Model
from clozeworks.nn.mixer import Mixer, MixerLayer
from clozeworks.recipe import Recipe


@dataclass(slots=True)
class PruneHeads(Step):
    """The least important `share` of all heads is cut (Michel et al. 2019): rows of W_q, W_k, W_v, columns of W_o.

    I_h = E_x |dL(x) / dxi_h| (`by` = gradient; `importance`), or without any data |W_o,h W_v,h|_F, the size of what a
    head can write (magnitude). `scope` = global: the least of all layers together, after those of each layer have been
    divided by their length; layer: as many of each. At least one of each layer stays. Layers that share weights lose
    the same heads. What is left computes what the whole model would with the others' outputs at 0.
    """

    name: ClassVar[str] = "heads"
    main: ClassVar[str | None] = "share"
    share: Part = 0.3
    by: Literal["gradient", "magnitude"] = "gradient"
    scope: Literal["global", "layer"] = "global"

    def apply(self, bundle: B, data: Data) -> B:
        """Score every head, choose, and cut rows and columns."""
        recipe, model = copy_recipe(bundle), bundle.model
        groups = list(_groups(recipe).values())
        mixers = [cast(MixerLayer, find_part(model, place)) for group in groups for place in group]
        if self.by == "gradient":
            outs = [(mixer.get_submodule("out"), cast(int, mixer.heads)) for mixer in mixers]
            said = iter(by_gradient(bundle, data, outs))
        else:
            said = iter([written(mixer) for mixer in mixers])
        scores = [torch.stack([next(said) for _ in group]).sum(0) for group in groups]
        kept = select(scores, self.share, self.scope)
        before = sum(len(score) for score in scores)
        if sum(map(len, kept)) == before:
            needed = f"of {before} heads that is none, or the last of its layer"
            raise InputError(f"{recipe.name}, heads", self.share, needed, "take more of them, or none")
        weights = parameters(model)
        for group, own in zip(groups, kept, strict=True):
            for place in group:
                _cut(model, recipe, weights, place, own)
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights))


def _groups(recipe: Recipe) -> dict[tuple[str, str, int], list[Place]]:
    """The mixers whose heads can be cut, those together that share weights; refused where there is none."""
    one_way(recipe, "cutting heads")
    together = {name: alike(stack, "attention", "bias") for name, stack in stacks(recipe).items()}
    groups: dict[tuple[str, str, int], list[Place]] = {}
    refused: list[RecipeError] = []
    for stack, layer, block in layers(recipe):
        for path, part in walk(block):
            if isinstance(part, Mixer) and part.whole is None:
                groups.setdefault((stack, path, together[stack][layer]), []).append(Place(stack, layer, path))
            elif isinstance(part, Mixer):
                where, given = f"{recipe.name}.{stack}.block.{path}", type(part).__name__
                refused.append(RecipeError(where, given, part.whole or "", "use another step: ffn, layers, vocab"))
    if not groups:
        raise refused[0]
    return groups


def written(mixer: MixerLayer) -> Tensor:
    """|W_o,h W_v,h|_F of each head: the trace of (W_o^T W_o) (W_v W_v^T)."""
    heads = cast(int, mixer.heads)
    value = mixer.get_parameter("value.weight").detach().unflatten(0, (heads, -1))  # [H, d, D]
    out = mixer.get_parameter("out.weight").detach().unflatten(1, (heads, -1)).transpose(0, 1)  # [H, D, d]
    return ((out.mT @ out) * (value @ value.mT)).sum((1, 2)).clamp(min=0).sqrt().cpu()


def _cut(model: Model, recipe: Recipe, weights: dict[str, Tensor], place: Place, kept: list[int]) -> None:
    mixer = cast(MixerLayer, find_part(model, place))
    heads, width = cast(int, mixer.heads), mixer.get_parameter("out.weight").shape[0]
    block = stacks(recipe)[place.stack].block
    assert isinstance(block, tuple)
    old = dict(walk(block[place.layer]))[place.path]
    if len(kept) < heads:
        replace_at(block[place.layer], place.path, cast(Mixer, old).keep_heads(kept, width))
    for path, module in mixer.named_modules():
        for name, axis in getattr(module, "by_head", {}).items():
            full = ".".join(filter(None, (place.name, path, name)))
            if full in weights:
                parts = weights[full].unflatten(axis, (heads, -1))
                weights[full] = parts.index_select(axis, torch.tensor(kept)).flatten(axis, axis + 1)
