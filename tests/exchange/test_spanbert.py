"""SpanBERT's directories: a BERT for `transformers`, with one more head beside it that we read back."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from clozeworks.core.batch import Spans, from_padded
from clozeworks.core.errors import RecipeError
from clozeworks.exchange import huggingface
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.span_boundary import SpanBoundary
from clozeworks.objectives.mask import MaskSpans
from clozeworks.objectives.segments import DocSentences
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.exchange.test_huggingface import compare, inputs, their_model

transformers = pytest.importorskip("transformers")

HEAD = "pair_target_predictions."
TENSORS = {
    HEAD + "position_embeddings.weight": (7, 200),
    HEAD + "mlp_layer_norm.linear1.weight": (32, 2 * 32 + 200),
    HEAD + "mlp_layer_norm.linear1.bias": (32,),
    HEAD + "mlp_layer_norm.layer_norm1.weight": (32,),
    HEAD + "mlp_layer_norm.layer_norm1.bias": (32,),
    HEAD + "mlp_layer_norm.linear2.weight": (32, 32),
    HEAD + "mlp_layer_norm.linear2.bias": (32,),
    HEAD + "mlp_layer_norm.layer_norm2.weight": (32,),
    HEAD + "mlp_layer_norm.layer_norm2.bias": (32,),
    HEAD + "bias": (97,),
}


def ours(longest: int = 7) -> TextEncoder:
    r = recipe("spanbert_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = 97, 32, 2
    r.objective.losses = (MaskedLM(), SpanBoundary(longest=longest))
    model = build(r).eval()
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    return TextEncoder(model, None, r)


def loss_of(encoder: TextEncoder) -> float:
    batch = from_padded(torch.arange(5, 25).view(2, 10))
    batch.targets, batch.labels = torch.tensor([3, 4, 15]), torch.tensor([50, 51, 52])
    edges = [torch.tensor(numbers) for numbers in ([0, 2, 1], [2, 14, 2], [5, 16, 5], [0, 0, 1], [2, 5, 14, 16])]
    batch.spans = Spans(*edges, (2, 1))
    with torch.no_grad():
        return float(encoder.model(batch).losses["span_boundary"])


def test_their_class_loads_it_and_we_read_the_head_back(tmp_path):
    encoder = ours()
    save(encoder, tmp_path / "out", format="hf")
    results = {name: tuple(each.shape) for name, each in load_file(tmp_path / "out" / "model.safetensors").items()}
    assert {name: shape for name, shape in results.items() if name.startswith(HEAD)} == TENSORS
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForMaskedLM"])
    kind = transformers.BertForMaskedLM
    theirs, report = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == set(TENSORS)
    compare(theirs.eval(), encoder, inputs(97, 0))
    bare = transformers.BertModel.from_pretrained(tmp_path / "out", add_pooling_layer=False).eval()
    batch = inputs(97, 0)
    with torch.no_grad():
        expected = bare(**batch).last_hidden_state
    torch.testing.assert_close(encoder.forward(**batch).last_hidden_state, expected, atol=1e-5, rtol=1e-5)

    again = load(tmp_path / "out")
    assert again.unused == []
    assert again.recipe.objective.losses == encoder.recipe.objective.losses
    assert isinstance(again.recipe.objective.corruption, MaskSpans)
    assert isinstance(again.recipe.objective.segments, DocSentences)
    assert loss_of(again) == loss_of(encoder)
    for (left, a), (right, b) in zip(encoder.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


def test_names_of_the_published_code(tmp_path):
    """Norms as gamma and beta, the tied table once more under the head, and a pooler that nothing reads."""
    encoder = ours()
    save(encoder, tmp_path, format="hf")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in list(tensors):
        if "orm" in name.rsplit(".", 2)[-2]:
            tensors[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = tensors.pop(name)
    assert HEAD + "mlp_layer_norm.layer_norm1.gamma" in tensors
    tensors[HEAD + "decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    pooler = {"bert.pooler.dense.weight": torch.ones(32, 32), "bert.pooler.dense.bias": torch.ones(32)}
    save_file(tensors | pooler, file)
    again = load(tmp_path)
    assert sorted(again.unused) == sorted(pooler)
    assert loss_of(again) == loss_of(encoder)


def test_a_released_directory_is_an_encoder(tmp_path):
    """Without heads, with a prefix, with TensorFlow's names of norms."""
    theirs = their_model("BertModel")
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    renamed = {}
    for name, tensor in load_file(file).items():
        if "LayerNorm" in name:
            name = name.replace("weight", "gamma").replace("bias", "beta")
        renamed["bert." + name] = tensor
    save_file(renamed, file)
    encoder = load(tmp_path)
    assert (encoder.unused, encoder.recipe.objective.losses) == ([], ())
    compare(theirs, encoder, inputs(97, 0))


def test_a_head_of_another_kind_is_not_written_as_the_published_one(tmp_path):
    for loss in (SpanBoundary(activation="relu"), SpanBoundary(norm=LayerNorm(1e-5))):
        r = ours().recipe
        r.objective.losses = (MaskedLM(), loss)
        with pytest.raises(RecipeError, match=r"losses\.1 = .*the published head has gelu"):
            huggingface.FAMILIES["bert"].write(r)
