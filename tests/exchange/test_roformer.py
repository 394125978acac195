"""RoFormer's directories, both ways, on random weights."""

import json

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.positions import Rotary
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.recipe import Recipe, build
from tests.exchange.test_huggingface import SMALL, inputs

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5


def their_model(name: str = "RoFormerForMaskedLM", **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.RoFormerConfig(**{**SMALL, **config})).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" not in key:
                parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


def compare(theirs, ours: TextEncoder) -> None:
    batch = inputs(97, 0) | {"token_type_ids": (torch.arange(17) > 6).long().expand(4, 17).contiguous()}
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True)
    out = ours.forward(**batch)
    for mine, other in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=1e-5)
    for name in ("logits", "start_logits"):
        if name in expected:
            torch.testing.assert_close(getattr(out, name), expected[name], atol=TOLERANCE, rtol=1e-5)


@pytest.mark.parametrize("embedding", [48, 16])
@pytest.mark.parametrize("name", ["MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_their_directories_come_and_go(name, embedding, tmp_path):
    theirs = their_model(f"RoFormerFor{name}", embedding_size=embedding)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.unused == []
    compare(theirs, ours)
    for parameter in ours.model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    save(ours, tmp_path / "ours", format="hf")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    compare(again.eval(), ours)


def test_a_bare_encoder_comes_and_goes(tmp_path):
    theirs = their_model("RoFormerModel")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    compare(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    compare(transformers.AutoModel.from_pretrained(tmp_path / "ours").eval(), ours)


def rotary_recipe() -> Recipe:
    r = cw.recipe("bert_tiny")
    r.encoder.vocab, r.encoder.embed.positions, r.encoder.pooler = 97, None, None
    r.encoder.stack.block_at(0).mixer.rotary = Rotary()
    r.objective = Objective(FullSentences(), r.objective.corruption, (MaskedLM(),))
    return r


@pytest.mark.parametrize("segments", [0, 2])
def test_a_recipe_of_ours_is_understood_there(segments, tmp_path):
    r = rotary_recipe()
    r.encoder.embed.segments = segments
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path / "out", format="hf")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["RoFormerForMaskedLM"]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    batch = inputs(97, 0)
    with torch.no_grad():
        torch.testing.assert_close(ours.forward(**batch).logits, theirs(**batch).logits, atol=TOLERANCE, rtol=1e-5)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("encoder.stack.block.mixer.rotary.base", "500", r"mixer\.rotary\.base = 500"),
        ("encoder.embed.positions", "LearnedPositions", r"embed\.positions = LearnedPositions"),
        ("encoder.embed.project", "true", r"embed\.project = True"),
        ("encoder.pooler", "Pooler", r"encoder\.pooler = Pooler"),
    ],
)
def test_what_their_class_cannot_hold_is_refused(path, value, message, tmp_path):
    r = rotary_recipe()
    if path == "encoder.pooler":
        r.objective.losses = ()
    cw.core.spec.set_path(r, path, value)
    with pytest.raises(RecipeError, match=message):
        save(TextEncoder(build(r).eval(), None, r), tmp_path / "out", format="hf")


def test_a_model_that_reads_one_way_is_refused(tmp_path):
    r = rotary_recipe()
    r.objective = Objective(FullSentences(), Shift(), ())
    with pytest.raises(RecipeError, match=r"objective\.corruption = Shift: the Hugging Face class reads both ways"):
        save(TextEncoder(build(r).eval(), None, r), tmp_path / "out", format="hf")


def test_what_we_have_no_part_for_is_refused(tmp_path):
    their_model(rotary_value=True).save_pretrained(tmp_path / "values")
    with pytest.raises(InputError, match="rotary_value True; values are not turned here"):
        load(tmp_path / "values")
    theirs = their_model()
    with torch.no_grad():
        theirs.roformer.encoder.embed_positions.weight.add_(1)
    theirs.save_pretrained(tmp_path / "learned")
    with pytest.raises(InputError, match="other positions; rotations are by sines and cosines"):
        load(tmp_path / "learned")
