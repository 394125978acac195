"""What the paper counts, and what its section 3 says of the parts."""

import math

import pytest
import torch

from clozeworks.core.spec import fields_of, to_dict
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.recipes import recipe


@pytest.mark.parametrize(("name", "whole"), [("transformer_base", 63_082_496), ("transformer_big", 214_245_376)])
def test_counts_are_published_ones(name: str, whole: int):
    r = recipe(name)
    assert count_parameters(r) == count_parameters(r, heads=False) == whole
    if name == "transformer_base":
        assert whole - r.encoder.vocab * r.encoder.width == 44_138_496


def test_the_rate_is_the_formula():
    for name, width in (("transformer_base", 512), ("transformer_big", 1024)):
        train = recipe(name).train
        for step in (1, 77, 3999, 4000, 4001, 90_000):
            assert learning_rate(step, train) == pytest.approx(width**-0.5 * min(step**-0.5, step * 4000**-1.5))


def test_a_word_is_read_as_section_3_says():
    """sqrt(D) times its vector, beside sine and cosine in turn, the same on both sides."""
    r = recipe("transformer_mini")
    r.encoder.vocab = 9
    model = build(r)
    assert model.decoder is not None
    assert model.decoder.embed is model.encoder.embed
    x = model.encoder.embed.positions
    assert x is not None
    result = x(torch.tensor([3]))[0]
    for unit in (0, 1, 10, 255):
        angle = 3 / 10_000 ** (unit // 2 * 2 / 256)
        assert result[unit].item() == pytest.approx((math.cos if unit % 2 else math.sin)(angle), abs=1e-6)
    assert model.encoder.embed.scale == 16
    assert all(stack.norm is None for stack in model.stacks)


def test_every_field_is_written():
    data = to_dict(recipe("gpt"))
    assert list(data) == ["part", *fields_of(Recipe)]
    assert list(data["objective"]["losses"][0]) == ["part", *fields_of(NextToken)]
