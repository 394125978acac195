"""Tables of any width: what is narrow, what is projected, and when."""

import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.embed import Embed
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.recipes import recipe
from tests.toys import packed

VOCAB, WIDTH, LENGTH = 30, 16, 9


def shapes(**fields) -> dict[str, tuple[int, ...]]:
    module = Embed(positions=LearnedPositions(LENGTH), **fields).build(WIDTH, VOCAB)
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def inputs() -> tuple[torch.Tensor, TokenInfo]:
    torch.manual_seed(1)
    context = packed([[4, 5], [7]], LENGTH)
    segment = (torch.arange(LENGTH) > 2).long().expand(2, LENGTH).contiguous()
    query = context.query
    return torch.randint(0, VOCAB, (2, LENGTH)), TokenInfo.make(query.position, query.document, "full", segment)


def test_every_table_is_narrow_or_the_words_alone():
    assert shapes() == {
        "words.table.weight": (VOCAB, WIDTH),
        "positions.table.weight": (LENGTH, WIDTH),
        "segments.weight": (2, WIDTH),
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
    }
    project = {"project.weight": (WIDTH, 4), "project.bias": (WIDTH,)}
    words = {"words.table.weight": (VOCAB, 4)}
    rest = {name: (*shape[:-1], 4) for name, shape in shapes().items()}
    assert shapes(width=4) == rest | words | project
    assert shapes(width=4, narrow="words") == shapes() | words | project


def test_where_widths_are_equal_nothing_is_projected_unless_asked_for():
    square = {"project.weight": (WIDTH, WIDTH), "project.bias": (WIDTH,)}
    for narrow in ("all", "words"):
        assert shapes(width=WIDTH, narrow=narrow) == shapes(narrow=narrow) == shapes()
        assert shapes(project=True, narrow=narrow) == shapes() | square


@pytest.mark.parametrize("width", [1, 4, WIDTH, 24])
@pytest.mark.parametrize("narrow", ["all", "words"])
def test_the_sum_is_the_definition(width, narrow):
    torch.manual_seed(0)
    embed = Embed(LearnedPositions(LENGTH), dropout=0.0, width=width, narrow=narrow, project=True)
    module = embed.build(WIDTH, VOCAB)
    tokens, side = inputs()
    assert side.segment is not None
    word, p = module.words.table.weight[tokens], dict(module.named_parameters())
    added = p["positions.table.weight"][side.position] + p["segments.weight"][side.segment]
    project = lambda x: x @ p["project.weight"].T + p["project.bias"]  # noqa: E731
    norm = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], p["norm.weight"], p["norm.bias"], 1e-12)  # noqa: E731
    expected = project(norm(word + added)) if narrow == "all" else norm(project(word) + added)
    out = module(tokens, side, packed([[4, 5], [7]], LENGTH))
    assert out.shape == (2, LENGTH, WIDTH)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)


def test_a_projection_that_is_the_identity_changes_nothing():
    torch.manual_seed(0)
    plain = Embed(LearnedPositions(LENGTH), norm=LayerNorm(), dropout=0.0).build(WIDTH, VOCAB)
    projected = Embed(LearnedPositions(LENGTH), norm=LayerNorm(), dropout=0.0, project=True).build(WIDTH, VOCAB)
    identity = {"project.weight": torch.eye(WIDTH), "project.bias": torch.zeros(WIDTH)}
    projected.load_state_dict(plain.state_dict() | identity)
    tokens, side = inputs()
    context = packed([[4, 5], [7]], LENGTH)
    torch.testing.assert_close(projected(tokens, side, context), plain(tokens, side, context), atol=1e-7, rtol=0)


@pytest.mark.parametrize("fields", [{}, {"width": 4}, {"width": 4, "narrow": "words"}], ids=str)
def test_words_alone_are_taken_times_the_root_of_the_models_width(fields):
    (tokens, side), context = inputs(), packed([[4, 5], [7]], LENGTH)
    plain, scaled = (
        Embed(LearnedPositions(LENGTH), scale=on, norm=None, **fields).build(WIDTH, VOCAB) for on in (False, True)
    )
    scaled.load_state_dict(plain.state_dict())
    with torch.no_grad():
        plain.words.table.weight *= 4
    assert torch.equal(scaled(tokens, side, context), plain(tokens, side, context))


def test_dropped_words_need_something_beside_them_where_norms_follow():
    r = recipe("bert_tiny")
    r.encoder.embed.word_dropout = 0.1
    spec.check(r)
    r.encoder.embed.positions, r.encoder.embed.segments = None, 0
    with pytest.raises(RecipeError, match=r"embed.word_dropout = 0.1: a word that is dropped is zeros"):
        spec.check(r)
