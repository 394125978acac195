"""Importance is the mean size of a gate's gradient, example by example."""

import pytest
import torch

from clozeworks.compress.data import Data, losses
from clozeworks.compress.importance import by_gradient, of_blocks, select
from tests.compress import models


@pytest.fixture(scope="module")
def bundle():
    return models.make_task("classify")


def test_heads_example_by_example(bundle):
    """Against a gate in front of each head, one example at a time."""
    table = models.make_table("classify")
    mixer = bundle.model.get_submodule("encoder.stack.blocks.1.mixer")
    (packed,) = by_gradient(bundle, Data(table=table, tokens=10**6), [(mixer.out, 4)])
    expected = torch.zeros(4)
    for row in range(len(table)):
        gate = torch.ones(4, 1, requires_grad=True)
        hook = mixer.out.register_forward_pre_hook(
            lambda _, arguments, gate=gate: ((arguments[0].unflatten(-1, (4, -1)) * gate).flatten(-2),)
        )
        loss, count = next(losses(bundle.model, Data(table=table.some([row])).batches(bundle)))
        hook.remove()
        assert count == 1
        expected += torch.autograd.grad(loss, gate)[0].flatten().abs() / len(table)
    torch.testing.assert_close(packed, expected, rtol=1e-3, atol=1e-6)
    assert expected.min() > 0


def test_blocks_by_what_they_add(bundle):
    """A gate on what a block adds to its input; a block that adds nothing counts for nothing."""
    table = models.make_table("classify").some([0])
    blocks = [bundle.model.get_submodule(f"encoder.stack.blocks.{layer}") for layer in range(4)]
    given = of_blocks(bundle, Data(table=table), blocks)
    for layer, block in enumerate(blocks[:3]):
        gate = torch.ones((), requires_grad=True)
        hook = block.register_forward_hook(
            lambda _, arguments, output, gate=gate: (arguments[0] + gate * (output[0] - arguments[0]), *output[1:])
        )
        loss, _ = next(losses(bundle.model, Data(table=table).batches(bundle)))
        hook.remove()
        assert given[layer] == pytest.approx(abs(float(torch.autograd.grad(loss, gate)[0])), rel=1e-3)


def test_nothing_is_left_behind(bundle):
    """No gradient, no hook, and every parameter learns as before."""
    before = {name: value.requires_grad for name, value in bundle.model.named_parameters()}
    mixer = bundle.model.get_submodule("encoder.stack.blocks.1.mixer")
    by_gradient(bundle, models.make_data("classify"), [(mixer.out, 4)])
    assert before == {name: value.requires_grad for name, value in bundle.model.named_parameters()}
    assert all(value.grad is None for value in bundle.model.parameters())
    assert not any(each._forward_pre_hooks or each._forward_hooks for each in bundle.model.modules())


def test_selection():
    scores = [torch.tensor([4.0, 3.0, 0.0, 1.0]), torch.tensor([0.2, 0.1, 0.1, 0.2])]
    assert select(scores, 0.5, "layer") == [[0, 1], [0, 3]]
    assert select(scores, 0.25, "global") == [[0, 1], [0, 1, 2, 3]], "after each group was brought to length 1"
    assert select(scores, 0.99, "global") == [[0], [0]]
    assert select(scores, 0.5, "layer", multiple=3) == [[0, 1, 3], [0, 1, 3]]
    assert select(scores, 0.5, "layer", multiple=8) == [[0, 1, 2, 3], [0, 1, 2, 3]]
