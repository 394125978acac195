"""DistilBertModel and DistilBertForMaskedLM in and out."""

import json

import pytest
import torch

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange import huggingface
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.model import Pooler
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.losses.hidden_states import HiddenStates
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe
from tests.exchange.test_huggingface import TOLERANCE, inputs

transformers = pytest.importorskip("transformers")

CLASSES = ("DistilBertForMaskedLM", "DistilBertModel")
SMALL = {"vocab_size": 97, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}


def their_model(name: str, **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.DistilBertConfig(**{**SMALL, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


def compare(theirs, ours: TextEncoder) -> None:
    batch = inputs(97, 0)
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True)
    out = ours.forward(**batch)
    for mine, other in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=1e-5)
    if "logits" in expected:
        torch.testing.assert_close(out.logits, expected.logits, atol=TOLERANCE, rtol=1e-5)
    else:
        torch.testing.assert_close(out.last_hidden_state, expected.last_hidden_state, atol=TOLERANCE, rtol=1e-5)
        assert out.logits is None


def tiny() -> Recipe:
    r = recipe("distilbert_mini")
    r.encoder.vocab = 97
    return r


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("name", CLASSES)
def test_their_directory_gives_the_same_numbers_here(name, activation, tmp_path):
    theirs = their_model(name, activation=activation)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.unused == []
    assert [loss.name for loss in ours.recipe.objective.losses] == (["masked_lm"] if "MaskedLM" in name else [])
    compare(theirs, ours)


@pytest.mark.parametrize("name", CLASSES)
def test_our_directory_gives_the_same_numbers_there(name, tmp_path):
    their_model(name).save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    for parameter in ours.model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    save(ours, tmp_path / "ours", format="hf")
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == [name]
    compare(theirs.eval(), ours)
    again = load(tmp_path / "ours")
    for (left, a), (right, b) in zip(ours.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


def test_what_compared_with_a_teacher_is_left_out_and_reported(tmp_path):
    r = tiny()
    r.objective.losses = (*r.objective.losses, HiddenStates(width=64))
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    theirs, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs).__name__ == "DistilBertForMaskedLM"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    compare(theirs.eval(), ours)
    card = (tmp_path / "README.md").read_text()
    assert "served distillation alone: SoftTargets, HiddenCosine, HiddenStates." in card


def test_a_student_with_token_types_is_still_a_bert(tmp_path):
    r = recipe("bert_tiny")
    r.encoder.vocab = 97
    r.objective.losses = (*tiny().objective.losses, r.objective.losses[1])
    save(TextEncoder(build(r).eval(), None, r), tmp_path, format="hf")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForPreTraining"]


def test_names_go_there_and_back():
    r = tiny()
    family = huggingface.FAMILIES["distilbert"]
    for ours, _ in build(r).named_parameters():
        theirs = family.to_theirs(ours)
        assert theirs is not None
        assert family.to_ours(theirs) == ours


def test_what_their_class_cannot_hold_is_refused():
    r = tiny()
    r.encoder.embed.norm, r.encoder.stack.block_at(0).norm = LayerNorm(1e-5), LayerNorm(1e-5)
    r.objective.losses[1].norm = LayerNorm(1e-5)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RecipeError, match=r"norm\.eps = 1e-05: .*keep the model in its own format"):
        huggingface.FAMILIES["distilbert"].write(r)
    r = tiny()
    r.encoder.pooler = Pooler()
    with pytest.raises(RecipeError, match=r"encoder\.pooler = "):
        huggingface.FAMILIES["distilbert"].write(r)


def test_untied_embeddings_are_refused(tmp_path):
    theirs = their_model("DistilBertForMaskedLM", tie_word_embeddings=False)
    with torch.no_grad():
        theirs.vocab_projector.weight += 1
    theirs.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="tied"):
        load(tmp_path)


@pytest.mark.slow
def test_full_size(tmp_path):
    r = recipe("distilbert_base")
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    theirs = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path).eval()
    assert sum(p.numel() for p in theirs.parameters()) == 66_985_530
    compare(theirs, ours)
