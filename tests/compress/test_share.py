"""Layers that share begin as the mean of what they were."""

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import PruneHeads, ShareLayers
from clozeworks.core.errors import InputError
from tests.compress import models


@pytest.mark.parametrize("groups", [1, 2])
def test_the_mean_of_each_group(groups: int):
    bundle = models.make_model("bert_tiny")
    small = ShareLayers(groups).apply(bundle, models.make_data("bert_tiny"))
    assert small.recipe.encoder.stack.share.attention == small.recipe.encoder.stack.share.ffn == groups
    for part in ("mixer.query.weight", "mixer_norm.weight", "ffn.up.bias", "ffn_norm.bias"):
        old = torch.stack([bundle.model.get_parameter(f"encoder.stack.blocks.{layer}.{part}") for layer in range(4)])
        for layer in range(4):
            group = layer * groups // 4
            own = small.model.get_parameter(f"encoder.stack.blocks.{layer}.{part}")
            torch.testing.assert_close(own, old.unflatten(0, (groups, -1))[group].mean(0))
    layers = sum(value.numel() for name, value in bundle.model.named_parameters() if "blocks.0." in name)
    assert cw.count_parameters(bundle.recipe) - cw.count_parameters(small.recipe) == (4 - groups) * layers


def test_refusals():
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    with pytest.raises(InputError, match="depth 4 is not divisible by it; use 1, 2 or 4"):
        ShareLayers(3).apply(bundle, data)
    with pytest.raises(InputError, match="each of 4 layers would have its own"):
        ShareLayers(4).apply(bundle, data)
    shared = ShareLayers(2).apply(bundle, data)
    assert ShareLayers(1).apply(shared, data).recipe.encoder.stack.share.ffn == 1
    uneven = PruneHeads(0.3).apply(bundle, data)
    with pytest.raises(InputError, match="share only blocks of one shape"):
        ShareLayers(1).apply(uneven, data)
