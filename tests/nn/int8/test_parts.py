"""Parts of int8 in the places of others: what a recipe says is what is built, shared weights stay shared."""

import copy

import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.nn.int8.parts import Int8, Int8Embedding, Int8Linear, holds_int8, quantizable
from clozeworks.optim.parameter_groups import build_optimizer
from clozeworks.recipe import build, count_parameters
from clozeworks.recipes import named, recipe


def small(name: str):
    r = recipe(name)
    r.encoder.vocab = 200
    return r


def int8(name: str, *fp32: str):
    r = small(name)
    r.encoder.int8 = Int8(fp32)
    return r


def test_a_recipe_says_what_is_int8_and_what_stays():
    kept = "encoder.stack.blocks.0.ffn.up"
    model = build(int8("bert_tiny", kept))
    kinds = {name: type(model.get_submodule(name)) for name in quantizable(build(small("bert_tiny")))}
    assert type(model.encoder.embed.words.table) is Int8Embedding
    assert {kind for name, kind in kinds.items() if name not in (kept, "encoder.embed.words.table")} == {Int8Linear}
    assert list(quantizable(model)) == [kept]
    assert holds_int8(model)
    dtypes = {parameter.dtype for parameter in model.parameters()}
    assert dtypes == {torch.float32, torch.int8}


def test_the_recipe_is_stored_and_read_again():
    r = int8("bert_tiny", "encoder.pooler.dense")
    assert spec.from_dict(spec.to_dict(r)) == r


def test_fresh_weights_are_those_of_a_seed_and_count_as_weights():
    one, two = build(int8("bert_tiny")), build(int8("bert_tiny"))
    for (name, a), (_, b) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    table = one.encoder.embed.words.table.weight
    assert table.std().item() == pytest.approx(0.02, rel=0.05)
    scales = sum(value.numel() for name, value in one.named_parameters() if name.endswith(".scale"))
    assert count_parameters(int8("bert_tiny")) == count_parameters(small("bert_tiny")) + scales


def test_an_unknown_name_is_refused():
    with pytest.raises(RecipeError, match=r"encoder.int8.fp32 = nowhere: .* of that name"):
        build(int8("bert_tiny", "nowhere"))


@pytest.mark.parametrize("name", sorted(name for name in named() if name.endswith("_mini")))
def test_every_family_builds_and_shares_what_it_shared(name):
    plain, model = build(small(name)), build(int8(name))
    for before, after in zip(plain.modules(), model.modules(), strict=False):
        assert type(after) is type(before) or isinstance(after, Int8Linear | Int8Embedding)
    shared = {
        one: [two for two, other in quantizable(plain).items() if other.weight is part.weight]
        for one, part in quantizable(plain).items()
    }
    for one, names in shared.items():
        first = model.get_submodule(one)
        assert all(model.get_submodule(two).quantized is first.quantized for two in names)


def test_a_tied_head_scores_with_the_table_as_it_is_stored():
    model = build(int8("bert_tiny")).eval()
    table = model.encoder.embed.words.table
    ids = torch.tensor([[3, 1, 4]])
    assert torch.equal(table(ids), table.weight[ids])
    head = model.head("masked_lm")
    with torch.no_grad():
        logits = head.logits(torch.randn(2, model.encoder.width))
    assert logits.shape == (2, len(table.weight))
    assert logits.isfinite().all()


def test_training_is_refused():
    r = int8("bert_tiny")
    with pytest.raises(InputError, match="an int8 model; training needs weights in fp32"):
        build_optimizer(build(r), r.train.optimizer, 1e-3)


def test_a_copy_is_another():
    model = build(int8("bert_tiny"))
    other = copy.deepcopy(model)
    other.encoder.embed.words.table.quantized.data.zero_()
    assert model.encoder.embed.words.table.quantized.any()
