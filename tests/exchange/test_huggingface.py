"""Parity with `transformers`, both ways, on random weights."""

import json

import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange import huggingface
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.norm import LayerNorm
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5
SMALL = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 40,
}
CLASSES = {
    "BertForPreTraining": "bert",
    "BertForMaskedLM": "bert",
    "BertForNextSentencePrediction": "bert",
    "BertModel": "bert",
    "RobertaForMaskedLM": "roberta",
    "RobertaModel": "roberta",
}


def their_model(name: str, **config):
    """A Hugging Face model with weights large enough that a mistake shows."""
    torch.manual_seed(0)
    family = transformers.BertConfig if name.startswith("Bert") else transformers.RobertaConfig
    model = getattr(transformers, name)(family(**{**SMALL, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


def inputs(vocab: int, padding: int, rows: int = 4, width: int = 17) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    ids = torch.randint(5, vocab, (rows, width))
    mask = torch.ones_like(ids)
    for row, length in enumerate((width, 1, 9, 12)[:rows]):
        mask[row, length:] = 0
        ids[row, length:] = padding
    return {"input_ids": ids, "attention_mask": mask}


def compare(theirs, ours: TextEncoder, batch: dict[str, torch.Tensor]) -> None:
    """Hidden states of every layer and every kind of logits, on every position, padding included."""
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True)
    out = ours.forward(**batch)
    assert len(out.hidden_states) == len(expected.hidden_states)
    for mine, other in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=1e-5)
    name = type(theirs).__name__
    if name.endswith("Model"):
        torch.testing.assert_close(out.last_hidden_state, expected.last_hidden_state, atol=TOLERANCE, rtol=1e-5)
        torch.testing.assert_close(out.pooler_output, expected.pooler_output, atol=TOLERANCE, rtol=1e-5)
    if name.endswith("MaskedLM"):
        torch.testing.assert_close(out.logits, expected.logits, atol=TOLERANCE, rtol=1e-5)
    if name.endswith("NextSentencePrediction"):
        torch.testing.assert_close(out.seq_relationship_logits, expected.logits, atol=TOLERANCE, rtol=1e-5)
    if name.endswith("PreTraining"):
        torch.testing.assert_close(out.logits, expected.prediction_logits, atol=TOLERANCE, rtol=1e-5)
        torch.testing.assert_close(
            out.seq_relationship_logits, expected.seq_relationship_logits, atol=TOLERANCE, rtol=1e-5
        )


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_their_directory_gives_the_same_numbers_here(name, segments, tmp_path):
    theirs = their_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.tokenizer is None
    assert ours.unused == []
    batch = inputs(97, theirs.config.pad_token_id)
    if segments and name.startswith("Bert"):
        batch["token_type_ids"] = (torch.arange(17) > 6).long().expand(4, 17).contiguous()
    compare(theirs, ours, batch)


def test_the_head_of_one_family_keeps_its_activation(tmp_path):
    theirs = their_model("RobertaForMaskedLM", hidden_act="relu")
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    compare(theirs, ours, inputs(97, 1))
    ours.recipe.objective.losses[0].activation = "relu"
    with pytest.raises(RecipeError, match="the encoder's norm and gelu"):
        huggingface.FAMILIES["roberta"].write(ours.recipe)


@pytest.mark.parametrize("name", CLASSES)
def test_our_directory_gives_the_same_numbers_there(name, tmp_path):
    first = their_model(name)
    first.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    for parameter in ours.model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    save(ours, tmp_path / "ours", format="hf")
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(theirs).__name__ == json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"][0]
    compare(theirs.eval(), ours, inputs(97, theirs.config.pad_token_id))
    again = load(tmp_path / "ours")
    for (left, a), (right, b) in zip(ours.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini"])
def test_a_recipe_of_ours_is_understood_there(name, tmp_path):
    r = recipe(name)
    r.encoder.vocab = 97
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path / "ours", format="hf")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "ours").eval()
    compare(theirs, ours, inputs(97, theirs.config.pad_token_id))
    assert load(tmp_path / "ours").recipe.encoder == r.encoder or r.encoder.pooler is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("bert_base", "BertForPreTraining"), ("roberta_base", "RobertaForMaskedLM")]
)
def test_full_size(name, kind, tmp_path):
    r = recipe(name)
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path / "ours", format="hf")
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "ours").eval()
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.model.parameters())
    compare(theirs, ours, inputs(r.encoder.vocab, theirs.config.pad_token_id))


def test_left_padding_and_holes_are_keys_only(tmp_path):
    theirs = their_model("BertModel")
    theirs.save_pretrained(tmp_path)
    batch = inputs(97, 0)
    batch["attention_mask"] = torch.tensor([[0] * 5 + [1] * 12, [1, 0] * 8 + [1], [1] * 17, [0] * 16 + [1]])
    compare(theirs, load(tmp_path), batch)


def test_another_padding_id_turns_roberta_into_the_same_bert(tmp_path):
    r = recipe("roberta_mini")
    r.encoder.vocab = 97
    ours = TextEncoder(build(r).eval(), None, r)
    config = huggingface.write(tmp_path, ours.model, r, pad=0)
    assert config["model_type"] == "bert"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    ids = torch.randint(2, 97, (3, 11))
    with torch.no_grad():
        torch.testing.assert_close(ours.forward(ids).logits, theirs(ids).logits, atol=TOLERANCE, rtol=1e-5)


def test_a_roberta_that_learns_from_pairs_is_the_same_bert(tmp_path):
    r = recipe("roberta_mini_segment_pair")
    r.encoder.vocab = 97
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    theirs, report = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = torch.randint(2, 97, (3, 11))
    batch = {"input_ids": ids, "token_type_ids": (torch.arange(11) > 4).long().expand(3, 11).contiguous()}
    compare(theirs.eval(), ours, batch)


def test_tensorflow_norm_names_are_read():
    family = huggingface.FAMILIES["bert"]
    assert family.to_ours("bert.embeddings.LayerNorm.gamma") == "encoder.embed.norm.weight"
    assert family.to_ours("bert.embeddings.LayerNorm.beta") == "encoder.embed.norm.bias"


@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini"])
def test_names_go_there_and_back(name):
    r = recipe(name)
    r.encoder.vocab = 30
    family = huggingface.FAMILIES[name.split("_")[0]]
    for ours, _ in build(r).named_parameters():
        theirs = family.to_theirs(ours)
        assert theirs is not None
        assert family.to_ours(theirs) == ours


def test_what_their_class_cannot_hold_is_refused():
    r = recipe("bert_tiny")
    r.encoder.vocab = 30
    r.encoder.embed.norm = LayerNorm(1e-5)
    with pytest.raises(
        RecipeError, match=r"bert_tiny\.encoder\.embed\.norm\.eps = 1e-05: .*keep the model in its own format"
    ):
        huggingface.FAMILIES["bert"].write(r)


def test_untied_embeddings_are_refused(tmp_path):
    theirs = their_model("BertForMaskedLM", tie_word_embeddings=False)
    with torch.no_grad():
        theirs.cls.predictions.decoder.weight += 1
    theirs.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="tied"):
        load(tmp_path)


def test_a_pickle_is_refused_and_converted_on_demand(tmp_path):
    theirs = their_model("BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"clozeworks import .* --allow-pickle"):
        load(tmp_path)
    compare(theirs, load(tmp_path, allow_pickle=True), inputs(97, 0))


def test_a_pickle_that_runs_code_is_not_run(tmp_path):
    theirs = their_model("BertModel")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return open, (str(mark), "w")

    torch.save({"embeddings.word_embeddings.weight": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="not opened"):
        load(tmp_path, allow_pickle=True)
    assert not mark.exists()


def test_a_family_we_do_not_know(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta-xl"}')
    with pytest.raises(InputError, match="xlm-roberta-xl; models of this family are not read; choose"):
        load(tmp_path)


def test_the_recipe_of_a_directory_builds_the_same_shapes(tmp_path):
    theirs = their_model("BertForPreTraining", hidden_act="gelu_new", layer_norm_eps=1e-6, type_vocab_size=3)
    theirs.save_pretrained(tmp_path)
    r = load(tmp_path).recipe
    assert isinstance(r, Recipe)
    assert spec.from_dict(spec.to_dict(r)) == r
    assert r.encoder.stack.block_at(0).norm.eps == 1e-6
    compare(theirs, load(tmp_path), inputs(97, 0))


def test_a_config_of_other_types_is_named(tmp_path):
    their_model("BertModel").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": "x"}))
    with pytest.raises(RecipeError, match=r"config\.json\.encoder\.width = 'x': a value of type int"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="model_type list"):
        load(tmp_path)


def test_a_config_without_its_shape_is_named(tmp_path):
    their_model("BertModel").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"config\.json: no field \w+; it gives the model its shape"):
        load(tmp_path)
