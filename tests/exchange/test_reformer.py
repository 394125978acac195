"""Reformer directories, both ways, on random weights: kinds of attention, lengths, positions, heads."""

import json

import pytest
import torch
from torch import Tensor

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.nn.stack import Share
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5
SHAPE = {
    "vocab_size": 53,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "attention_head_size": 8,
    "feed_forward_size": 48,
    "attn_layers": ["local", "lsh", "local", "lsh"],
    "local_attn_chunk_length": 8,
    "lsh_attn_chunk_length": 8,
    "num_buckets": 4,
    "axial_pos_shape": [8, 8],
    "axial_pos_embds_dim": [8, 24],
    "max_position_embeddings": 64,
    "hash_seed": 5,
    "is_decoder": True,
}


def their_model(name: str = "ReformerModelWithLMHead", **config):
    torch.manual_seed(0)
    given = {**SHAPE, "is_decoder": name == "ReformerModelWithLMHead", **config}
    model = getattr(transformers, name)(transformers.ReformerConfig(**given)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(0, 0.0 if key == "lm_head.bias" else 0.15)
    return model


@pytest.fixture(autouse=True)
def single_turns(monkeypatch):
    """Theirs is computed in double precision, for the weights of its rounds have steps of 0.008 in single, where a
    token sees only itself; the random turns stay what they are."""
    draw = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *args, dtype=None, **more: draw(*args, **more).to(dtype))


def ids(length: int, rows: int = 2) -> Tensor:
    return torch.randint(1, 53, (rows, length), generator=torch.Generator().manual_seed(1))


def compare(theirs, ours: TextEncoder, tokens: Tensor, mask: Tensor | None = None) -> None:
    """Last vectors, each layer's second stream and logits, of all real tokens."""
    with torch.no_grad():
        expected = theirs.double()(input_ids=tokens, attention_mask=mask, output_hidden_states=True)
    out, length = ours.forward(tokens, attention_mask=mask), tokens.shape[1]
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
    for actual, wanted in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(actual[..., 32:][real], wanted[:, :length][real].float(), rtol=0, atol=TOLERANCE)
    if "logits" in expected:
        torch.testing.assert_close(out.logits[real], expected.logits[real].float(), rtol=0, atol=TOLERANCE)
    else:
        torch.testing.assert_close(
            out.last_hidden_state[real], expected.last_hidden_state[real].float(), rtol=0, atol=TOLERANCE
        )


def through(theirs, folder) -> TextEncoder:
    theirs.save_pretrained(folder)
    return load(folder)


KINDS = {
    "local": {"attn_layers": ["local"] * 3},
    "lsh": {"attn_layers": ["lsh"] * 3},
    "uneven": {"attn_layers": ["local", "lsh", "lsh", "local", "lsh"]},
    "rounds": {"num_hashes": 3},
    "factors": {"num_buckets": [2, 4]},
    "follows": {"num_buckets": None},
    "wide": {"attention_head_size": 10},
    "learned": {"axial_pos_embds": False},
    "chunked": {"chunk_size_feed_forward": 8},
    "back": {"lsh_num_chunks_before": 2, "local_num_chunks_before": 2},
    "gelu": {"hidden_act": "gelu"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_their_directories_load(kind, tmp_path):
    theirs = their_model(**KINDS[kind])
    ours = through(theirs, tmp_path / "theirs")
    assert not ours.unused
    compare(theirs, ours, ids(32))


@pytest.mark.parametrize("name", ["ReformerModel", "ReformerForMaskedLM", "ReformerModelWithLMHead"])
@pytest.mark.parametrize("length", [1, 5, 8, 13, 40, 64])
def test_rows_of_any_length_and_padded_ones(name, length, tmp_path):
    theirs = their_model(name)
    ours = through(theirs, tmp_path / "theirs")
    tokens = ids(length)
    compare(theirs, ours, tokens)
    if length > 4:
        mask = torch.ones_like(tokens)
        mask[1, length - 3 :] = 0
        compare(theirs, ours, tokens, mask)


@pytest.mark.parametrize("name", ["ReformerModel", "ReformerForMaskedLM", "ReformerModelWithLMHead"])
def test_they_load_ours_and_nothing_is_lost(name, tmp_path):
    theirs = their_model(name, num_hashes=2, chunk_size_feed_forward=4)
    ours = through(theirs, tmp_path / "theirs")
    save(ours, tmp_path / "ours", format="hf")
    again, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    compare(again.eval(), ours, ids(24))
    given, written = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("theirs", "ours"))
    assert {key: given[key] for key in written.keys() & given.keys() - {"torch_dtype"}} == {
        key: written[key] for key in written.keys() & given.keys() - {"torch_dtype"}
    }
    assert load(tmp_path / "ours").recipe.encoder == ours.recipe.encoder


def test_a_head_that_is_tied_is_written_as_the_product_of_its_matrices(tmp_path):
    r = through(their_model(), tmp_path / "theirs").recipe
    r.objective.losses = (NextToken(),)
    model = cw.build(r).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    ours = TextEncoder(model, None, r)
    save(ours, tmp_path / "ours", format="hf")
    compare(transformers.ReformerModelWithLMHead.from_pretrained(tmp_path / "ours").eval(), ours, ids(24))


def test_a_bias_that_older_versions_add_is_kept_and_not_written(tmp_path):
    theirs = their_model()
    torch.nn.init.normal_(theirs.lm_head.bias)
    ours = through(theirs, tmp_path / "theirs")
    assert ours.recipe.objective.losses == (NextToken(tied=False, bias=True),)
    with torch.no_grad():
        expected = theirs(input_ids=ids(16)).logits + theirs.lm_head.bias
    torch.testing.assert_close(ours.forward(ids(16)).logits, expected, rtol=0, atol=TOLERANCE)
    with pytest.raises(RecipeError, match=r"losses\.0\.bias = True: the Hugging Face class adds none"):
        save(ours, tmp_path / "ours", format="hf")
    masked = their_model("ReformerForMaskedLM")
    torch.nn.init.normal_(masked.lm_head.bias)
    with pytest.raises(InputError, match=r"lm_head\.bias: other than 0"):
        through(masked, tmp_path / "masked")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"attn_layers": ["local", "full"]}, r"attn_layers \['local', 'full'\]"),
        ({"hidden_act": "mish"}, "hidden_act mish"),
        ({"axial_pos_shape": [4, 4, 4], "axial_pos_embds_dim": [8, 8, 16]}, r"axial_pos_shape \[4, 4, 4\]"),
    ],
)
def test_configs_of_other_models_are_refused(config, message, tmp_path):
    their_model().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    with pytest.raises(InputError, match=message):
        load(tmp_path)


def dropped(r):
    r.encoder.stack.dropout = 0.3


def mixed(r):
    r.encoder.stack.block_at(0).mixer = Attention(4)


def other_chunks(r):
    blocks = list(r.encoder.stack.block)
    blocks[0].mixer = LSH(4, chunk=16, buckets=4, seed=5)
    r.encoder.stack.block = tuple(blocks)


def shared(r):
    r.encoder.stack.share = Share(2, 2)


def waves(r):
    r.encoder.embed.positions = SinusoidalPositions()


def ahead(r):
    r.encoder.stack.block_at(0).mixer.after = 1


def between(r):
    r.objective.losses = (MaskedLM(),)


@pytest.mark.parametrize("change", [dropped, mixed, other_chunks, shared, waves, ahead, between])
def test_what_their_class_cannot_say_is_refused(change, tmp_path):
    r = through(their_model(), tmp_path / "theirs").recipe
    change(r)
    with pytest.raises(RecipeError):
        save(TextEncoder(cw.build(r), None, r), tmp_path / "ours", format="hf")
