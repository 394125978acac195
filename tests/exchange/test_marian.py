"""Marian's directories, both ways, on random weights; and what is written from a source beside `transformers`' own."""

import dataclasses
import json

import pytest
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.beam_search import BeamSearch, beam_search_batch, translations
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.embed import Embed
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Share
from clozeworks.objectives.losses.next_token import NextTokenLayer
from clozeworks.recipe import build
from tests.nn.test_decoder import pair, randomised, small

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5
PAD, END = 49, 0
SHAPE = {
    "vocab_size": 50,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "activation_function": "relu",
    "scale_embedding": True,
    "pad_token_id": PAD,
    "decoder_start_token_id": PAD,
    "eos_token_id": END,
    "forced_eos_token_id": None,
}


def their_model(name: str = "MarianMTModel", deviation: float = 0.15, **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.MarianConfig(**{**SHAPE, **config})).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" not in key:
                parameter.normal_(0, deviation)
                if "layer_norm.weight" in key:
                    parameter.add_(1)
        if name == "MarianMTModel":
            model.final_logits_bias.normal_(0, 0.5)
    model.tie_weights()
    return model


def their_inputs(batch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.source.tokens,
        "attention_mask": (batch.source.token_info.document == 0).long(),
        "decoder_input_ids": batch.tokens,
    }


@pytest.mark.parametrize("name", ["MarianMTModel", "MarianModel"])
@pytest.mark.parametrize("config", [{}, {"activation_function": "swish", "scale_embedding": False}])
def test_their_directories_load_and_go_back(name, config, tmp_path):
    theirs = their_model(name, **config)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, batch = load(tmp_path / "theirs"), pair([7, 4, 9], [5, 8, 3])
    with torch.no_grad():
        expected = theirs(**their_inputs(batch))
        actual = ours.model.read(batch, ()).last
    real = batch.token_info.document == 0
    head = ours.model.head("next_token")
    if name == "MarianModel":
        assert head is None
        torch.testing.assert_close(actual[real], expected.last_hidden_state[real], rtol=0, atol=TOLERANCE)
    else:
        assert isinstance(head, NextTokenLayer)
        torch.testing.assert_close(head.logits(actual)[real], expected.logits[real], rtol=0, atol=TOLERANCE)
    save(ours, tmp_path / "again", format="hf")
    again, loading = getattr(transformers, name).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not loading["unexpected_keys"]
    for key, value in theirs.state_dict().items():
        if "embed_positions" not in key:
            assert torch.equal(again.state_dict()[key], value), key
    kept = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: kept[key] for key in SHAPE if key != "max_position_embeddings"} | config == {
        key: value for key, value in (SHAPE | config).items() if key != "max_position_embeddings"
    }
    save(ours, tmp_path / "own")
    for key, value in load(tmp_path / "own").model.state_dict().items():
        assert torch.equal(ours.model.state_dict()[key], value), key


def test_the_papers_positions_leave_as_theirs(tmp_path):
    """Sine and cosine in turn is the same model with its units in another order."""
    r = small(decoder__start="49", decoder__end="0")
    ours = TextEncoder(randomised(build(r)), None, r)
    save(ours, tmp_path / "out", format="hf")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    batch = pair([7, 4, 9], [5, 8, 3])
    with torch.no_grad():
        expected = theirs(**their_inputs(batch)).logits
        head = ours.model.head("next_token")
        assert isinstance(head, NextTokenLayer)
        actual = head.logits(ours.model.read(batch, ()).last)
    real = batch.token_info.document == 0
    torch.testing.assert_close(actual[real], expected[real], rtol=0, atol=TOLERANCE)


def sources() -> list[list[int]]:
    generator = torch.Generator().manual_seed(4)
    lengths = (6, 3, 9, 9, 1, 4)
    return [torch.randint(1, PAD, (n,), generator=generator).tolist() for n in lengths]


@pytest.fixture(scope="module")
def lively(tmp_path_factory):
    """One that does not say the same word for ever, and often ends."""
    theirs = their_model(deviation=0.4)
    with torch.no_grad():
        theirs.final_logits_bias[0, END] = 10.0
    folder = tmp_path_factory.mktemp("lively")
    theirs.save_pretrained(folder)
    return theirs, load(folder)


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (3, 1.0), (4, 0.0), (4, 2.0)])
def test_what_is_written_is_theirs(lively, beams, penalty):
    theirs, ours = lively
    texts = sources()
    batch = from_padded(*_padded(texts))
    with torch.no_grad():
        expected = theirs.generate(
            input_ids=torch.where(batch.token_info.document == 0, batch.tokens, PAD),
            attention_mask=(batch.token_info.document == 0).long(),
            max_new_tokens=12,
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=penalty,
            early_stopping=False,
        )
    reader = IncrementalReader(ours.model, source=batch)
    if beams == 1:
        readers = [IncrementalReader(ours.model, source=from_padded(torch.tensor([text]))) for text in texts]
        written = [sample(each, [PAD], 12, Sampling(0), end=END) for each in readers]
    else:
        written = beam_search_batch(
            reader, [[PAD]] * len(texts), [12] * len(texts), BeamSearch(beams, penalty), end=END
        )
    flat = [one for each in written for one in each]
    assert {one.tokens[-1] == END for one in flat} == {True, False}
    for one, wanted in zip(flat, expected[:, 1:].tolist(), strict=True):
        assert one.tokens == wanted[: len(one.tokens)]
        assert all(token == PAD for token in wanted[len(one.tokens) :])


def _padded(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, texts))
    tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    return tokens, torch.arange(width) < torch.tensor([len(text) for text in texts])[:, None]


def test_many_sources_are_written_as_each_alone(lively):
    _, ours = lively
    how, texts = BeamSearch(3, 0.6, 5, never=(PAD,)), [*sources(), []]
    together = dict(translations(ours.model, texts, start=PAD, end=END, how=how, more=8, batch_tokens=60))
    assert sorted(together) == list(range(len(texts)))
    assert together[len(texts) - 1] == []
    for at, text in enumerate(texts[:-1]):
        ((_, alone),) = translations(ours.model, [text], start=PAD, end=END, how=how, more=8)
        assert [one.tokens for one in alone] == [one.tokens for one in together[at]]
        for one, other in zip(alone, together[at], strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert len(one.tokens) <= len(text) + 8
            assert PAD not in one.tokens


REFUSED_HERE = {
    "share_encoder_decoder_embeddings": False,
    "decoder_vocab_size": 40,
    "activation_function": "quick_gelu",
}


@pytest.mark.parametrize("field", REFUSED_HERE)
def test_what_we_cannot_build_is_refused(field, tmp_path):
    their_model().save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: REFUSED_HERE[field]}))
    with pytest.raises(InputError, match=field):
        load(tmp_path / "theirs")


def test_positions_of_their_own_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    their_model().save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.encoder.embed_positions.weight"] = torch.randn(64, 32)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match="other positions"):
        load(tmp_path / "theirs")


def test_what_their_class_lacks_is_refused(tmp_path):
    changes = {
        "norm": lambda r: setattr(r.encoder.stack, "norm", LayerNorm()),
        "eps": lambda r: setattr(r.decoder.stack.block_at(0), "norm", LayerNorm(1e-12)),
        "pre": lambda r: setattr(r.decoder.stack.block_at(0), "place", "pre"),
        "share": lambda r: setattr(r.decoder.stack, "share", Share(1, 1)),
        "embed": lambda r: setattr(r.decoder, "embed", Embed(None, segments=0, norm=None)),
        "positions": lambda r: setattr(r.encoder.embed, "positions", LearnedPositions(128)),
        "start": lambda r: setattr(r.decoder, "start", None),
        "heads": lambda r: setattr(r.decoder.stack.block_at(0).cross, "heads", 2),
    }
    for name, change in changes.items():
        r = small(decoder__start="49", decoder__end="0")
        change(r)
        encoder = TextEncoder(build(r), None, dataclasses.replace(r))
        with pytest.raises(RecipeError, match=r"Hugging Face"):
            save(encoder, tmp_path / name, format="hf")
