"""ERNIE's directories both ways on random weights, with and without task types."""

import json

import pytest
import torch

from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.objectives.mask import MaskPhrases
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.exchange.test_huggingface import SMALL, compare, inputs

transformers = pytest.importorskip("transformers")

CLASSES = ["ErnieForPreTraining", "ErnieForMaskedLM", "ErnieForNextSentencePrediction", "ErnieModel"]


def their_model(name: str, **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.ErnieConfig(**{**SMALL, "hidden_act": "relu", **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_their_directory_gives_the_same_numbers_here(name, segments, tasks, tmp_path):
    theirs = their_model(name, use_task_id=tasks, task_type_vocab_size=5, layer_norm_eps=1e-5)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.unused == []
    batch = inputs(97, 0)
    if segments:
        batch["token_type_ids"] = (torch.arange(17) > 6).long().expand(4, 17).contiguous()
    compare(theirs, ours, batch)
    assert isinstance(ours.recipe.objective.corruption, MaskPhrases)


@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_our_directory_gives_the_same_numbers_there(name, tasks, tmp_path):
    their_model(name, use_task_id=tasks).save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    for parameter in ours.model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    save(ours, tmp_path / "ours", format="hf")
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (config["model_type"], config["architectures"], config["use_task_id"]) == ("ernie", [name], False)
    compare(theirs.eval(), ours, inputs(97, 0))
    again = load(tmp_path / "ours")
    for (left, a), (right, b) in zip(ours.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["ernie_basic_mini", "ernie_entity_mini"])
def test_a_recipe_of_ours_is_understood_there(name, tmp_path):
    r = recipe(name)
    r.encoder.vocab = 97
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__ == "ErnieForPreTraining"
    compare(theirs, ours, inputs(97, 0))
    assert load(tmp_path).recipe.encoder == r.encoder


def test_a_task_table_that_their_class_would_not_use_is_not_used_here(tmp_path):
    theirs = their_model("ErnieForMaskedLM", use_task_id=True)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "use_task_id": False}))
    plain = transformers.ErnieForMaskedLM.from_pretrained(tmp_path).eval()
    compare(plain, load(tmp_path), inputs(97, 0))
