"""What is exported is read back: a field that is lost is refused by name, and other numbers are an error of ours."""

import dataclasses

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import RecipeError
from clozeworks.exchange import huggingface, read_back
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.recipe import build
from clozeworks.tasks.tag import Tag


def model_of(name: str, **fields: str) -> TextEncoder:
    r = cw.recipe(name)
    r.encoder.vocab = 61
    for path, value in fields.items():
        cw.core.spec.set_path(r, path.replace("__", "."), value)
    return TextEncoder(build(r).eval(), None, r)


def test_a_memory_that_begins_with_zeros_is_not_lost(tmp_path):
    ours = model_of("xlnet_mini_memory", encoder__stack__initial_memory="zeros")
    with pytest.raises(RecipeError, match=r"xlnet_mini_memory\.encoder\.stack\.initial_memory = zeros: .*no such part"):
        save(ours, tmp_path / "out", format="hf")
    assert list(tmp_path.iterdir()) == []
    save(model_of("xlnet_mini_memory"), tmp_path / "out", format="hf")


def test_without_a_memory_it_begins_with_nothing_either_way(tmp_path):
    save(model_of("xlnet_mini", encoder__stack__initial_memory="zeros"), tmp_path / "out", format="hf")


def test_a_field_that_no_config_holds_is_refused_whatever_the_table_says(tmp_path, monkeypatch):
    """The last check needs no help of a family's own."""
    bert = huggingface.FAMILIES["bert"]

    def careless(recipe):
        plain = cw.recipe("bert_tiny")
        plain.encoder.vocab = recipe.encoder.vocab
        return bert.write(plain)

    monkeypatch.setitem(huggingface.FAMILIES, "bert", dataclasses.replace(bert, write=careless))
    ours = model_of("bert_tiny", encoder__stack__block__residual="false")
    with pytest.raises(RecipeError, match=r"bert_tiny\.encoder\.stack\.block\.0\.residual = False"):
        save(ours, tmp_path / "out", format="hf")
    assert list(tmp_path.iterdir()) == []


def test_other_numbers_are_an_error_of_ours_that_names_the_family(tmp_path, monkeypatch):
    bert = huggingface.FAMILIES["bert"]

    def wrong(recipe, tensors):
        tensors["encoder.embed.norm.bias"] = tensors["encoder.embed.norm.bias"] + 1

    monkeypatch.setitem(huggingface.FAMILIES, "bert", dataclasses.replace(bert, export_hook=wrong))
    with pytest.raises(RuntimeError, match=r"^bert: \w+ of the written model differ by .* mistake of clozeworks"):
        save(model_of("bert_tiny"), tmp_path / "out", format="hf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["bert_tiny", "gpt_mini", "longformer_mini", "transformer_mini", "xlnet_mini"])
def test_every_head_is_compared(name):
    r = cw.recipe(name)
    r.encoder.vocab = 61
    model = build(r)
    with torch.no_grad():
        for head in model.heads.values():
            next(head.parameters(), model.encoder.embed.words.table.weight).mul_(2)
    scores = read_back.compute(model, read_back.draw_batch(r)).keys() - read_back.VECTORS
    assert scores == {loss.name for loss in r.objective.losses}


@pytest.mark.parametrize("name", ["elmo_mini", "awd_lstm_mini", "nnlm", "rnn_attention_mini", "lite_transformer_mini"])
def test_layers_that_no_class_has_are_named(name, tmp_path):
    r = cw.recipe(name)
    r.encoder.vocab = 61
    ours = TextEncoder(build(r).eval(), None, r)
    with pytest.raises(RecipeError, match=rf"{name}\.encoder\.stack\.block\.mixer = \w+: no class .* has such layers"):
        save(ours, tmp_path / "out", format="hf")
    if r.decoder is None:
        r.start, r.objective.losses = (), (Tag(labels=("a", "b")),)
        with pytest.raises(RecipeError, match=r"\.mixer = \w+: no class"):
            save(TextEncoder(build(r).eval(), None, r), tmp_path / "out", format="hf")
    assert not huggingface.fits(r)


@pytest.mark.parametrize("plain", [True, False])
def test_hashed_attention_that_was_trained_with_masks(plain, tmp_path):
    ours = model_of("reformer_mini")
    ours.recipe.objective.corruption = MaskTokens()
    ours.recipe.objective.losses = (MaskedLM(plain=plain),)
    ours = TextEncoder(build(ours.recipe).eval(), None, ours.recipe)
    if plain:
        save(ours, tmp_path / "out", format="hf")
        return
    with pytest.raises(RecipeError, match=r"reformer_mini\.objective\.losses\.0"):
        save(ours, tmp_path / "out", format="hf")


def test_a_head_for_the_next_token_that_was_trained_with_masks(tmp_path):
    ours = model_of("reformer_mini").recipe
    ours.objective.corruption = MaskTokens()
    with pytest.raises(RecipeError, match=r"reformer_mini\.heads\.next_token\.head\.weight.*has no such part"):
        save(TextEncoder(build(ours).eval(), None, ours), tmp_path / "out", format="hf")
