"""What a task reads of the layers."""

import torch

from clozeworks.core import spec
from clozeworks.core.batch import Hidden
from clozeworks.tasks.layer_selection import ScalarMix


def test_a_mix_of_layers_brought_to_one_scale():
    """As the published code has it: one mean and variance a layer, over all that is no padding."""
    torch.manual_seed(0)
    layers = tuple(3 * torch.randn(2, 4, 5) + number for number in range(3))
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    module = ScalarMix(2, norm=True).build()
    with torch.no_grad():
        module.weights.copy_(torch.tensor([0.1, -0.4, 0.9]))
        module.gamma.fill_(1.7)
    actual = module(Hidden(layers[-1], layers, real=real))
    shares, expected = torch.tensor([0.1, -0.4, 0.9]).softmax(0), torch.zeros(2, 4, 5)
    for share, layer in zip(shares, layers, strict=True):
        inside = layer[real]
        expected += 1.7 * share * (layer - inside.mean()) / (inside.var(unbiased=False) + 1e-12).sqrt()
    torch.testing.assert_close(actual, expected)
    all_real = module(Hidden(layers[-1], layers))
    assert not torch.allclose(all_real, actual)


def test_the_norm_is_written_as_every_field():
    assert spec.to_dict(ScalarMix(2)) == {"part": "ScalarMix", "depth": 2, "norm": False}
