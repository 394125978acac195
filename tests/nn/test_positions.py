import math

import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import AxialPositions, Rotary, SinusoidalPositions
from clozeworks.recipe import build

WIDTH = 10


def test_sines_and_cosines_are_the_formula():
    position = torch.tensor([[0, 1, 7, 512]])
    halves, pairs = (SinusoidalPositions(order).build(WIDTH)(position) for order in ("halves", "pairs"))
    assert halves.shape == pairs.shape == (1, 4, WIDTH)
    for place, p in enumerate(position[0].tolist()):
        for i in range(WIDTH // 2):
            angle = p / 10_000 ** (2 * i / WIDTH)
            for result, at in ((halves, (i, WIDTH // 2 + i)), (pairs, (2 * i, 2 * i + 1))):
                assert result[0, place, at[0]].item() == pytest.approx(math.sin(angle), abs=5e-5)
                assert result[0, place, at[1]].item() == pytest.approx(math.cos(angle), abs=5e-5)


def test_they_are_added_to_the_words_and_have_no_weights():
    r = cw.recipe("bert_tiny")
    r.encoder.vocab, r.encoder.embed.positions, r.encoder.embed.norm = 20, SinusoidalPositions(), None
    r.encoder.embed.segments = 0
    embed, batch = build(r).encoder.embed, from_padded(torch.arange(6)[None])
    x = embed(batch.tokens, batch.token_info, batch.context())
    assert torch.equal(x, embed.words(batch.tokens) + SinusoidalPositions().build(128)(batch.token_info.position))
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


def test_a_position_is_its_row_beside_its_column():
    spec = AxialPositions((3, 4), (2, 5))
    layer = spec.build(7)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    position = torch.arange(12).expand(2, 12)
    result = layer(position)
    assert (spec.limit, result.shape) == (12, (2, 12, 7))
    for p in range(12):
        assert torch.equal(result[1, p], torch.cat([layer.rows[p // 4], layer.columns[p % 4]]))
    assert torch.equal(layer(position[:, 3:8]), result[:, 3:8])  # any length, from anywhere
    assert sum(parameter.numel() for parameter in layer.parameters()) == 3 * 2 + 4 * 5


def test_a_column_of_the_grid_is_dropped_whole_in_each_row_of_the_batch_another():
    layer = AxialPositions((5, 40), (2, 3), dropout=0.5).build(5)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    position = torch.arange(200).expand(3, 200)
    result, plain = layer(position, DropoutKey.make(1, rows=range(3))), layer(position)
    kept = (result != 0).all(-1)
    torch.testing.assert_close(result[kept], 2 * plain[kept])
    assert not bool(result[~kept].any())
    grid = kept.view(3, 5, 40)
    assert torch.equal(grid, grid[:, :1].expand_as(grid))
    assert not torch.equal(grid[0], grid[1])
    assert 0.3 < float(grid.float().mean()) < 0.7
    assert torch.equal(layer(position[1:2], DropoutKey.make(1, rows=range(1, 2))), result[1:2])


def axial_recipe(**fields):
    r = cw.recipe("bert_tiny")
    r.encoder.vocab, r.encoder.embed.norm, r.encoder.embed.segments = 20, None, 0
    r.encoder.embed.positions = AxialPositions(**{"shape": (16, 8), "widths": (32, 96), **fields})
    return r


def test_fresh_vectors_have_a_deviation_of_their_own_or_that_of_all():
    for deviation, low, high in ((None, 0.01, 0.04), (1.0, 0.8, 1.2)):
        positions = build(axial_recipe(deviation=deviation)).encoder.embed.positions
        assert low < float(positions.rows.detach().std()) < high


def test_words_may_be_dropped_alone():
    r = axial_recipe(dropout=0.0)
    r.encoder.embed.dropped, r.encoder.embed.dropout = "words", 0.5
    embed, batch = build(r).encoder.embed, from_padded(torch.arange(6)[None])
    x = embed(batch.tokens, batch.token_info, batch.context(key=DropoutKey.make(1)))
    assert embed.positions is not None
    rest = (x - embed.positions(batch.token_info.position)).detach()
    gone = rest.abs() < 1e-6
    assert 0.4 < float(gone.float().mean()) < 0.6
    torch.testing.assert_close(rest[~gone], 2 * embed.words(batch.tokens).detach()[~gone], atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shape": (4, 8)}, r"positions\.shape = \[4, 8\]: examples are up to 128 tokens long"),
        ({"widths": (0, 128)}, r"positions\.widths\.0 = 0: 1 or more is needed"),
        ({"widths": (32, 32)}, r"positions\.widths = \[32, 32\]: together they must give the width, 128"),
        ({"dropout": 1.0}, r"positions\.dropout = 1\.0: a number in"),
    ],
)
def test_grids_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(RecipeError, match=message):
        check(axial_recipe(**fields), "r")
    check(axial_recipe(), "r")


# ---- rotary positions


def context(position: torch.Tensor) -> Context:
    side = TokenInfo.make(position, torch.zeros_like(position), "full")
    return Context.make(side, side)


def test_rotation_is_the_published_one() -> None:
    modeling = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    table = modeling.RoFormerSinusoidalPositionalEmbedding(40, 8).create_weight()
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 3, 7, 8)
    theirs = modeling.RoFormerSelfAttention.apply_rotary_position_embeddings(table[:7][None, None], q, k)
    position = torch.arange(7).expand(2, 7)
    own = [Rotary().rotate(x, position, context(position), "query") for x in (q, k)]
    torch.testing.assert_close(own[0], theirs[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(own[1], theirs[1], rtol=0, atol=2e-6)


def test_scores_depend_on_distance_alone() -> None:
    torch.manual_seed(0)
    mixer, x = Attention(2, rotary=Rotary()).build(16), torch.randn(1, 9, 16)
    near = torch.arange(9)[None]
    here, there = (mixer(x, None, context(position))[0] for position in (near, near + 5_000))
    torch.testing.assert_close(here, there, rtol=0, atol=1e-4)
    shuffled = mixer(x, None, context(torch.tensor([[3, 1, 0, 2, 8, 7, 5, 6, 4]])))[0]
    assert (here - shuffled).abs().max() > 1e-3


def test_pairs_need_even_heads() -> None:
    spec = Attention(4, rotary=Rotary())
    check(spec, "mixer")
    with pytest.raises(RecipeError, match=r"mixer.rotary = Rotary: units are turned in pairs, and a head has 3"):
        spec.fit("mixer", 12)
