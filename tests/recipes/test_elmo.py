"""What the recipes say of the model."""

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.core.spec import to_dict
from clozeworks.inference.generation import IncrementalReader
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.optim.parameter_groups import layers_below
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost


def test_the_published_count():
    assert cw.count_parameters("elmo_base", heads=False) == 93_600_864
    r = recipe("elmo_base")
    with torch.device("meta"):
        words = r.encoder.embed.build(512, 100).words
        stack = r.encoder.stack.build(512)
    assert sum(p.numel() for p in words.parameters() if p.is_floating_point()) == 18_037_856
    assert sum(p.numel() for p in stack.parameters()) == 75_563_008
    assert cw.count_parameters("elmo_base") == 93_600_864 + 793_471 * 513, "with the softmax that both ways share"


def test_both_ways_count_where_parts_are_listed():
    cost = measure_cost(recipe("elmo_mini"))
    assert cost.without_heads == cw.count_parameters("elmo_mini", heads=False)
    mixers, _ = cost.of_blocks("mixer")
    assert mixers == 4 * (4 * 512 * 256 + 4 * 512 + 512 * 128)
    assert layers_below("encoder.stack.back.blocks.1.mixer.enter", 2) == 1


def test_it_gives_three_layers_of_twice_the_width():
    r = recipe("elmo_mini")
    r.encoder.vocab = 50
    encoder = TextEncoder(build(r).eval(), None, r)
    ids, mask = torch.randint(0, 50, (2, 7)), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    out = encoder.forward(ids, mask)
    assert [tuple(each.shape) for each in out.hidden_states] == [(2, 7, 256)] * 3
    assert out.logits is None
    assert torch.equal(out.hidden_states[0][..., :128], out.hidden_states[0][..., 128:])
    alone = encoder.forward(ids[1:, :4])
    torch.testing.assert_close(out.last_hidden_state[1, :4], alone.last_hidden_state[0], atol=1e-6, rtol=1e-5)


def test_it_continues_with_no_text():
    r = recipe("elmo_mini")
    r.encoder.vocab = 50
    with pytest.raises(InputError, match="one that reads both ways; a text is continued by one that reads it one way"):
        IncrementalReader(build(r))


def test_what_it_does_not_use_is_written_too():
    data = to_dict(recipe("transformer_xl_mini"))
    assert data["objective"]["segments"]["both"] is False
    assert data["encoder"]["stack"]["block"]["residual"] is True
