"""Inner units are cut for real: what is left computes what the whole model does without the others."""

import copy

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import PruneFeedForward
from clozeworks.compress.feed_forward import size
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.read_back import compute, draw_batch
from clozeworks.nn.ffn import FeedForwardLayer
from tests.compress import models

FAMILIES = ("bert_tiny", "albert_mini", "gpt_mini", "xlnet_mini", "reformer_mini", "transformer_mini", "classify")


def parts(bundle: Bundle) -> dict[str, FeedForwardLayer]:
    return {name: each for name, each in bundle.model.named_modules() if isinstance(each, FeedForwardLayer)}


@pytest.mark.parametrize("by", ["gradient", "magnitude"])
@pytest.mark.parametrize("name", FAMILIES)
def test_cut_is_masked(name: str, by):
    bundle = models.make_task(name) if name in models.TASKS else models.make_model(name)
    small = PruneFeedForward(0.4, by=by).apply(bundle, models.make_data(name))
    masked = copy.deepcopy(bundle.model)
    for path, cut in parts(small).items():
        whole = masked.get_submodule(path)
        assert isinstance(whole, FeedForwardLayer)
        assert cut.up.out_features % 8 == 0
        gate = torch.tensor([any(torch.equal(row, own) for own in cut.up.weight) for row in whole.up.weight]).float()
        assert int(gate.sum()) == cut.up.out_features
        whole.down.register_forward_pre_hook(lambda _, arguments, gate=gate: (arguments[0] * gate,))
    batch = draw_batch(small.recipe)
    whole, expected, given = (compute(each, batch) for each in (bundle.model, masked, small.model))
    for key, value in expected.items():
        torch.testing.assert_close(given[key], value, atol=1e-6 * max(1.0, float(value.abs().max())), rtol=1e-6)
    assert any(not torch.allclose(whole[key], value, atol=1e-3) for key, value in expected.items())


def test_parameters_to_the_unit():
    """An inner unit of a model of width D has 2 D weights and a bias."""
    bundle = models.make_model("bert_tiny")
    for multiple, gone in ((1, 96), (16, 64)):
        small = PruneFeedForward(0.5, scope="layer", multiple=multiple).apply(bundle, models.make_data("bert_tiny"))
        assert cw.count_parameters(bundle.recipe) - cw.count_parameters(small.recipe) == gone * (2 * 32 + 1)


@pytest.mark.parametrize("by", ["gradient", "magnitude"])
def test_units_that_say_nothing_go_first(by):
    bundle = models.make_model("bert_tiny")
    path, part = next(iter(parts(bundle).items()))
    with torch.no_grad():
        part.down.weight[:, 5:13] = 0
    assert (size(part) == 0).nonzero().flatten().tolist() == list(range(5, 13))
    small = PruneFeedForward(8 / 192, by=by, multiple=1).apply(bundle, models.make_data("bert_tiny"))
    left = parts(small)[path]
    assert left.up.out_features == 40
    assert torch.equal(left.up.weight, torch.cat([part.up.weight[:5], part.up.weight[13:]]))


def test_a_share_of_no_unit_is_refused():
    with pytest.raises(InputError, match="in multiples of 8, that is none"):
        PruneFeedForward(0.01).apply(models.make_model("bert_tiny"), models.make_data("bert_tiny"))


def test_layers_of_several_widths_are_no_class_of_hugging_face(tmp_path):
    small = PruneFeedForward(0.4).apply(models.make_model("bert_tiny"), models.make_data("bert_tiny"))
    assert isinstance(small.recipe.encoder.stack.block, tuple)
    with pytest.raises(InputError, match="layers are alike there"):
        cw.save(small, tmp_path / "hf", format="hf")
    even = PruneFeedForward(0.5, scope="layer").apply(models.make_model("bert_tiny"), models.make_data("bert_tiny"))
    cw.save(even, tmp_path / "even", format="hf")
