"""Words in clusters: which vector a word has, and what is refused."""

import random

import numpy as np
import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.nn.embed import Embed
from clozeworks.nn.words import Adaptive, members
from clozeworks.recipes import recipe
from tests.toys import packed

VOCAB, WIDTH = 30, 16


def shapes(inner: int = WIDTH, **fields) -> dict[str, tuple[int, ...]]:
    module = Adaptive((5, 12), **fields).build(VOCAB, inner, WIDTH)
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def test_rarer_words_have_narrower_vectors():
    assert shapes() == {"tables.0.weight": (30, 16)}
    assert shapes(8) == {"tables.0.weight": (30, 8), "projections.0.weight": (16, 8)}
    tables = {"tables.0.weight": (5, 16), "tables.1.weight": (7, 8), "tables.2.weight": (18, 4)}
    mapped = {"projections.0.weight": (16, 16), "projections.1.weight": (16, 8), "projections.2.weight": (16, 4)}
    assert shapes(divide=2) == tables | mapped


@pytest.mark.parametrize("divide", [1, 2])
@pytest.mark.parametrize("inner", [8, 16])
def test_each_word_has_the_vector_of_its_cluster(divide, inner):
    torch.manual_seed(0)
    module = Adaptive((5, 12), divide).build(VOCAB, inner, WIDTH)
    tokens = torch.cat([torch.arange(VOCAB), torch.randint(0, VOCAB, (18,))]).view(4, 12)
    actual = module(tokens)
    begins = (0, 5, 12)
    for row, column in torch.cartesian_prod(torch.arange(4), torch.arange(12)).tolist():
        word = int(tokens[row, column])
        cluster = sum(word >= begin for begin in begins[1:])
        vector = module.weights[cluster][word - begins[cluster]]
        project = module.projection(cluster)
        expected = vector if project is None else project @ vector
        torch.testing.assert_close(actual[row, column], expected)
    actual.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in module.parameters())


def test_a_cluster_that_no_word_of_a_batch_is_in_has_no_gradient_and_does_no_harm():
    module = Adaptive((5, 12), 2).build(VOCAB, WIDTH, WIDTH)
    first, second, third = torch.autograd.grad(module(torch.tensor([[1, 20]])).sum(), module.weights)
    assert first.any()
    assert not second.any()
    assert third.any()
    assert module(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, WIDTH)


def test_cutoffs_beyond_the_vocabulary_cut_nothing():
    words = Adaptive((5, 30, 200), 2)
    assert words.ends(30) == (5, 30)
    assert words.ends(5) == (5,)
    assert words.ends(1000) == (5, 30, 200, 1000)
    assert [len(one) for one in members(torch.tensor([0, 4, 5, 29, 29]), words.ends(30))] == [2, 3]


def test_positions_and_segments_are_added_to_vectors_as_wide_as_the_model():
    embed = Embed(words=Adaptive((5, 12), 2), width=8, dropout=0.0).build(WIDTH, VOCAB)
    assert embed.project is None
    assert embed.positions is not None
    assert embed.positions.table.weight.shape[1] == WIDTH
    context = packed([[6]], 6)
    assert embed(torch.arange(6)[None], context.query, context).shape == (1, 6, WIDTH)
    with pytest.raises(RecipeError, match="one table is needed"):
        _ = embed.words.table


def test_clusters_are_written_and_read():
    r = recipe("gpt_mini")
    assert spec.to_dict(r)["encoder"]["embed"]["words"] is None
    r.encoder.embed.words = Adaptive((50,), 4)
    again = spec.from_dict(spec.to_dict(r))
    assert again.encoder.embed.words == Adaptive((50,), 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (Adaptive(()), r"words\.cutoffs = \[\]"),
        (Adaptive((20, 10)), r"words\.cutoffs"),
        (Adaptive((0, 10)), r"words\.cutoffs"),
        (Adaptive((10,), 0), r"words\.divide = 0"),
        (Adaptive((10, 20, 30), 8), "nothing is left of a width of 256"),
    ],
)
def test_what_cannot_be_is_refused(words, message):
    r = recipe("gpt_mini")
    r.encoder.embed.words, r.objective.losses = words, ()
    with pytest.raises(RecipeError, match=message):
        spec.check(r, r.name)


def test_ids_that_are_not_in_order_of_frequency_are_reported():
    words = Adaptive((3, 6))
    counts = np.array([1, 0, 50, 40, 30, 20, 10, 5, 1])
    assert words.notes(np.sort(counts)[::-1]) == []
    assert words.notes(counts[:3]) == []  # all in one cluster
    (note,) = words.notes(counts)
    assert "the first 3 ids are 32% of the tokens, and the most frequent as many would be 76%" in note


def test_ids_of_a_words_tokenizer_are_in_order(tmp_path):
    draw, words = random.Random(0), [f"w{number}" for number in range(200)]
    text = [" ".join(draw.choices(words, [1 / rank for rank in range(1, 201)], k=50)) for _ in range(40)]
    prepare([{"text": one} for one in text], tmp_path / "data", tokenizer="words", vocab=300, heldout=0)
    counts = Corpus.open(tmp_path / "data").unigram()
    assert Adaptive((50,)).notes(counts) == []
    assert Adaptive((50,)).notes(counts[::-1]) != []


def test_a_projection_besides_is_refused():
    r = recipe("gpt_mini")
    r.encoder.embed.words, r.encoder.embed.project, r.objective.losses = Adaptive((10,)), True, ()
    with pytest.raises(RecipeError, match="projections of their own"):
        spec.check(r, r.name)
