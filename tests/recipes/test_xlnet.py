import torch

import clozeworks as cw
from clozeworks.core.spec import walk
from clozeworks.nn.bias.relative import RelativeLayer
from clozeworks.nn.two_stream import TwoStreamLayer
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost


def test_sizes_differ_in_size_alone():
    assert set(cw.diff("xlnet_large", "xlnet_base")) == {
        "name",
        "encoder.width",
        "encoder.stack.depth",
        "encoder.stack.block.mixer.heads",
        "encoder.stack.block.ffn.inner",
    }


def test_every_weight_that_is_not_of_a_norm_is_drawn():
    r = recipe("xlnet_mini")
    r.encoder.vocab = 500
    model = cw.build(r)
    stack = model.encoder.stack
    assert isinstance(stack, TwoStreamLayer)
    drawn = [stack.blank]
    for module in model.modules():
        if isinstance(module, RelativeLayer):
            drawn += [module.u, module.v, module.w, module.segment, module.position.weight]
    assert len(drawn) == 1 + 4 * 5
    for parameter in drawn:
        assert parameter is not None
        assert 0.7 < float(parameter.detach().std()) / r.encoder.init < 1.3
    assert len({parameter.flatten()[0].item() for parameter in drawn if parameter is not None}) == len(drawn)
    again = cw.build(r).encoder.stack.blank
    assert torch.equal(again, stack.blank)  # pyright: ignore[reportArgumentType]


def test_the_second_stream_is_counted():
    r = recipe("xlnet_mini")
    r.encoder.vocab = 500
    both = measure_cost(r)
    per_token = 2 * both.of_blocks("ffn")[0]
    assert 1.1 < both.of_blocks("ffn")[1] / per_token < 1.2  # it asks at one token in six or seven


def test_what_it_takes_is_known_without_dropout_too():
    r = recipe("xlnet_mini")
    r.encoder.vocab = 500
    dropped = measure_cost(r)
    for _, part in walk(r.encoder):
        if hasattr(part, "dropout"):
            setattr(part, "dropout", 0.0)  # noqa: B010
    assert 0 < measure_cost(r).passes < dropped.passes
