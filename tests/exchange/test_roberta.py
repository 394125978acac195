"""Families that are RoBERTa under another name, both ways, on random weights and with their own tokenizers."""

import json

import pytest
import torch

from clozeworks.exchange.names import roberta
from clozeworks.inference.text_encoder import load, save
from tests.exchange.test_huggingface import SMALL, compare, inputs

transformers = pytest.importorskip("transformers")
PIECES = [("▁", -2.0), ("▁he", -3.0), ("llo", -3.1), ("▁world", -3.5), ("a", -4.0), ("b", -4.0), (",", -4.2)]
VOCABULARIES = {
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    "camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", *PIECES, "<s>", "</s>", "<mask>"],
}


def their_model(model_type: str, kind: str, vocab: int = 97):
    torch.manual_seed(0)
    name = roberta.ALIKE[model_type]
    config = getattr(transformers, f"{name}Config")(**{**SMALL, "vocab_size": vocab, "type_vocab_size": 1})
    model = getattr(transformers, name + kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


def their_tokenizer(model_type: str):
    vocabulary = [(piece, 0.0) if isinstance(piece, str) else piece for piece in VOCABULARIES[model_type]]
    return getattr(transformers, f"{roberta.ALIKE[model_type]}Tokenizer")(vocab=vocabulary)


@pytest.mark.parametrize("kind", ["ForMaskedLM", "Model"])
@pytest.mark.parametrize("model_type", roberta.ALIKE)
def test_they_come_and_go(model_type, kind, tmp_path):
    theirs = their_model(model_type, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    compare(theirs, ours, inputs(97, 1))
    save(ours, tmp_path / "own")
    save(load(tmp_path / "own"), tmp_path / "back", format="hf")
    again, report = getattr(transformers, type(theirs).__name__).from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == (model_type, [type(theirs).__name__])
    for key, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"])
@pytest.mark.parametrize("model_type", roberta.ALIKE)
def test_their_tasks_come_and_go(model_type, kind, tmp_path):
    theirs, batch = their_model(model_type, kind), inputs(97, 1)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    save(ours, tmp_path / "back", format="hf")
    again = getattr(transformers, type(theirs).__name__).from_pretrained(tmp_path / "back").eval()
    name = "start_logits" if kind == "ForQuestionAnswering" else "logits"
    with torch.no_grad():
        expected = theirs(**batch)[name]
        assert torch.equal(again(**batch)[name], expected)
    torch.testing.assert_close(getattr(ours.forward(**batch), name), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_type", roberta.ALIKE)
def test_their_sentencepiece_tokenizers_come_and_go(model_type, tmp_path):
    tokenizer = their_tokenizer(model_type)
    tokenizer.save_pretrained(tmp_path / "theirs")
    their_model(model_type, "ForMaskedLM", len(tokenizer)).save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.tokenizer is not None
    save(ours, tmp_path / "back", format="hf")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in ("hello world", "hello, <mask> world", "a b ab", "unheard-of"):
        expected = tokenizer(text)["input_ids"]
        assert again(text)["input_ids"] == expected
        ids = ours.tokenizer.encode([text], specials=True)[0].ids.tolist()
        assert ours.add_special_tokens(ids)[0] == expected
    assert again("hello", "world")["input_ids"] == tokenizer("hello", "world")["input_ids"]
    assert len(ours.fill_mask("hello <mask>")) == 5


@pytest.mark.parametrize("activation", ["silu", "swish", "tanh"])
def test_other_activations_keep_their_function(activation, tmp_path):
    torch.manual_seed(0)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**{**SMALL, "hidden_act": activation})).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.15)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    compare(theirs, ours, inputs(97, 0))
    save(ours, tmp_path / "back", format="hf")
    compare(transformers.BertForMaskedLM.from_pretrained(tmp_path / "back").eval(), ours, inputs(97, 0))
