import math

import pytest
import torch

import clozeworks as cw
from clozeworks.batch import from_padded
from clozeworks.errors import RecipeError
from clozeworks.nn.attention import Attention
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.pretraining import build
from clozeworks.spec import check

WIDTH = 10


def test_sines_and_cosines_are_the_formula():
    position = torch.tensor([[0, 1, 7, 512]])
    halves, pairs = (SinusoidalPositions(order).build(WIDTH)(position) for order in ("halves", "pairs"))
    assert halves.shape == pairs.shape == (1, 4, WIDTH)
    for place, p in enumerate(position[0].tolist()):
        for i in range(WIDTH // 2):
            angle = p / 10_000 ** (2 * i / WIDTH)
            for found, at in ((halves, (i, WIDTH // 2 + i)), (pairs, (2 * i, 2 * i + 1))):
                assert found[0, place, at[0]].item() == pytest.approx(math.sin(angle), abs=5e-5)
                assert found[0, place, at[1]].item() == pytest.approx(math.cos(angle), abs=5e-5)


def test_they_are_added_to_the_words_and_have_no_weights():
    r = cw.recipe("bert_tiny")
    r.encoder.vocab, r.encoder.embed.positions, r.encoder.embed.norm = 20, SinusoidalPositions(), None
    r.encoder.embed.segments = 0
    embed, batch = build(r).encoder.embed, from_padded(torch.arange(6)[None])
    x = embed(batch.tokens, batch.side, batch.context())
    assert torch.equal(x, embed.words(batch.tokens) + SinusoidalPositions().build(128)(batch.side.position))
    assert not list(embed.positions.parameters())


@pytest.mark.parametrize("part", ["positions", "bias"])
def test_an_odd_width_is_refused(part):
    r = cw.recipe("bert_tiny")
    r.encoder.width = 9
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(3, bias=Relative() if part == "bias" else None)
    if part == "positions":
        r.encoder.embed.positions = SinusoidalPositions()
    with pytest.raises(RecipeError, match="it has as many sines as cosines, and width 9 is odd; use an even width"):
        check(r, r.name)
