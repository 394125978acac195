"""A table as the product of two: the nearest of its rank, on the way in and on the way out."""

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import Data, FactorizeEmbedding
from clozeworks.compress.vocabulary import count_tokens
from clozeworks.core.errors import InputError
from clozeworks.exchange.read_back import compute, draw_batch
from tests.compress import models

TABLE = "encoder.embed.words.table.weight"
FAMILIES = ("bert_tiny", "roberta_mini", "gpt_mini", "xlnet_mini", "cloze_tiny", "transformer_mini", "classify")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_table_of_low_rank_stays_what_it_was(name: str):
    """Of rank 6: the same outputs for 6 and more, and others for 5."""
    bundle = models.make_task(name) if name in models.TASKS else models.make_model(name)
    with torch.no_grad():
        left, values, right = torch.linalg.svd(bundle.model.get_parameter(TABLE), full_matrices=False)
        bundle.model.get_parameter(TABLE).copy_(left[:, :6] * values[:6] @ right[:6])
    batch = draw_batch(bundle.recipe)
    before = compute(bundle.model, batch)
    for rank, same in ((6, True), (9, True), (32, True), (5, False)):
        after = compute(FactorizeEmbedding(rank).apply(bundle, models.make_data(name)).model, batch)
        assert all(torch.allclose(after[key], value, atol=1e-4) for key, value in before.items()) == same, rank


def test_nothing_of_its_rank_is_nearer():
    """By Eckart and Young the squared error is the sum of the other squared singular values."""
    bundle = models.make_model("bert_tiny")
    small = FactorizeEmbedding(8, "equally").apply(bundle, models.make_data("bert_tiny"))
    table = bundle.model.get_parameter(TABLE)
    project = small.model.encoder.embed.project
    assert project is not None
    again = project(small.model.get_parameter(TABLE))
    left_out = torch.linalg.svdvals(table)[8:].square().sum()
    torch.testing.assert_close((table - again).square().sum(), left_out, rtol=1e-4, atol=1e-6)
    assert torch.equal(small.model.get_parameter("heads.masked_lm.map.weight"), project.weight.t())


def test_frequent_words_count_for_more():
    """By the error weighed with counts it is nearer than the other, and by the plain one farther."""
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    table = bundle.model.get_parameter(TABLE).detach()
    counts = 1 + torch.from_numpy(count_tokens(bundle, data, bundle.tokenizer))
    errors = []
    for weigh in ("equally", "frequency"):
        embed = FactorizeEmbedding(8, weigh).apply(bundle, data).model.encoder.embed
        assert embed.project is not None
        squared = (table - embed.project(embed.words.table.weight).detach()).square().sum(1)
        errors.append((float(squared.sum()), float((squared * counts).sum())))
    assert errors[0][0] < errors[1][0]
    assert errors[0][1] > errors[1][1]
    best = torch.linalg.svdvals(table * counts[:, None].sqrt())[8:].square().sum()
    assert errors[1][1] == pytest.approx(float(best), rel=1e-4)
    with pytest.raises(InputError, match="nothing to count"):
        FactorizeEmbedding(8).apply(bundle, Data())
    FactorizeEmbedding(8, "equally").apply(bundle, Data())


def test_parameters_to_the_unit():
    """V D become V E + E D + D, and E D of the way out."""
    bundle = models.make_model("bert_tiny")
    vocab = bundle.recipe.encoder.vocab
    small = FactorizeEmbedding(8).apply(bundle, models.make_data("bert_tiny"))
    saved = cw.count_parameters(bundle.recipe) - cw.count_parameters(small.recipe)
    assert saved == vocab * 32 - (vocab * 8 + 8 * 32 + 32) - 8 * 32


def test_refusals(tmp_path):
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    with pytest.raises(InputError, match="rank 32; use less"):
        FactorizeEmbedding(33).apply(bundle, data)
    small = FactorizeEmbedding(8).apply(bundle, data)
    with pytest.raises(InputError, match="a product already, 8 wide"):
        FactorizeEmbedding(4).apply(small, data)
    with pytest.raises(InputError, match="keep the model in its own format"):
        cw.save(small, tmp_path / "hf", format="hf")
