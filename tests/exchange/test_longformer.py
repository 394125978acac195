"""LongformerModel and LongformerForMaskedLM in and out: windows of each layer, global tokens, padding, any length."""

import json
from dataclasses import replace

import pytest
import torch

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange import huggingface
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.window import Window
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.shift import Shift
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe
from tests.exchange.test_huggingface import TOLERANCE

transformers = pytest.importorskip("transformers")

CLASSES = ("LongformerForMaskedLM", "LongformerModel")
SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "attention_window": [4, 8, 16],
}


def their_model(name: str, **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.LongformerConfig(**{**SMALL, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


def inputs(width: int, marks: bool, padding: int = 1) -> dict[str, torch.Tensor]:
    """Rows of several lengths; with marks another number of them in each, one of them on padding, in one row none."""
    torch.manual_seed(width)
    ids = torch.randint(5, 97, (4, width))
    mask = torch.ones_like(ids)
    for row, length in enumerate((width, 1, width - 3, width // 2 + 1)):
        mask[row, length:] = 0
        ids[row, length:] = padding
    batch = {"input_ids": ids, "attention_mask": mask}
    if marks:
        batch["global_attention_mask"] = torch.zeros_like(ids)
        batch["global_attention_mask"][0, [0, 3, width - 2]] = 1
        batch["global_attention_mask"][2, [1, width - 1]] = 1
        batch["global_attention_mask"][3, 0] = 1
    return batch


def compare(theirs, ours: TextEncoder, batch: dict[str, torch.Tensor]) -> None:
    """Every layer and the logits, at every token; what stands on padding is nobody's."""
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True)
    out, real = ours.forward(**batch), batch["attention_mask"].bool()
    for mine, other in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine[real], other[real], atol=TOLERANCE, rtol=1e-5)
    if "logits" in expected:
        torch.testing.assert_close(out.logits[real], expected.logits[real], atol=TOLERANCE, rtol=1e-5)
    else:
        torch.testing.assert_close(out.pooler_output, expected.pooler_output, atol=TOLERANCE, rtol=1e-5)


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("width", [7, 24, 37, 60])
@pytest.mark.parametrize("name", CLASSES)
def test_their_directory_gives_the_same_numbers_here(name, width, marks, tmp_path):
    theirs = their_model(name)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.unused == []
    assert [mixer.window.left for mixer in ours.recipe.encoder.stack.mixers()] == [2, 4, 8]
    assert ours.longest == 64
    compare(theirs, ours, inputs(width, marks))


def test_a_window_for_all_layers_and_padding_on_the_left(tmp_path):
    theirs = their_model("LongformerForMaskedLM", attention_window=6, type_vocab_size=2, hidden_act="relu")
    theirs.save_pretrained(tmp_path)
    ours, batch = load(tmp_path), inputs(23, marks=True)
    compare(theirs, ours, {**batch, "token_type_ids": torch.arange(23).expand(4, 23) % 2})
    compare(theirs, ours, {name: value.flip(1) for name, value in batch.items()})


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
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (config["architectures"], config["attention_window"]) == ([name], [4, 8, 16])
    for marks in (False, True):
        compare(theirs.eval(), ours, inputs(29, marks))
    again = load(tmp_path / "ours")
    for (left, a), (right, b) in zip(ours.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


def tiny(offset: int = 2) -> Recipe:
    r = recipe("longformer_mini")
    r.encoder.vocab, r.encoder.width, r.objective.segments.length = 97, 32, 64
    positions = r.encoder.embed.positions
    positions.length, positions.offset = 64, offset
    for layer, block in enumerate(r.encoder.stack.block):
        block.mixer = GlobalWindow(4, Window(2 << layer))
        block.ffn.inner = 48
    return r


@pytest.mark.parametrize(("offset", "pad"), [(0, 0), (2, 0), (2, 1), (0, 3), (2, None), (0, None)])
def test_positions_are_counted_as_they_count(offset, pad, tmp_path):
    """From the padding id + 1, wherever ours begin."""
    r = tiny(offset)
    model = build(r).eval()
    huggingface.write(tmp_path, model, r, pad)
    theirs = transformers.LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    pad = theirs.config.pad_token_id
    batch = inputs(20, marks=True, padding=pad)
    expected = theirs(**batch).logits
    plain = {**batch, "input_ids": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 1)}
    out, real = TextEncoder(model, None, r).forward(**plain).logits, batch["attention_mask"].bool()
    torch.testing.assert_close(out[real], expected[real], atol=TOLERANCE, rtol=1e-5)


def test_a_head_of_pairs_goes_along(tmp_path):
    """None of their classes has it; it comes back."""
    r = tiny(0)
    pairs = recipe("bert_tiny")
    r.encoder.embed.segments, r.encoder.pooler = 2, pairs.encoder.pooler
    r.objective = pairs.objective
    r.objective.segments.length = 64
    assert isinstance(r.objective.losses[0], MaskedLM)
    r.objective.losses[0].norm = r.encoder.stack.block_at(0).norm
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    assert type(transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)).__name__ == "LongformerForMaskedLM"
    again, batch = load(tmp_path), inputs(20, marks=True)
    here, there = ours.forward(**batch), again.forward(**batch)
    torch.testing.assert_close(here.seq_relationship_logits, there.seq_relationship_logits)
    assert again.recipe.objective.losses == r.objective.losses


def test_names_go_there_and_back():
    family = huggingface.FAMILIES["longformer"]
    for ours, _ in build(tiny()).named_parameters():
        theirs = family.to_theirs(ours)
        assert theirs is not None
        assert family.to_ours(theirs) == ours


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (Window(4, 2), r"block\.1\.mixer\.window\.right = .*both sides are equal there"),
        (Window(4, dilation=2), r"block\.1\.mixer\.window\.dilation = 2: windows have no gaps there"),
        (Window(4, dilation=(1, 1, 2, 2)), r"block\.1\.mixer\.window\.dilation = .*no gaps there"),
        (Window(0), r"block\.1\.mixer\.window\.left = 0: .*at least two tokens"),
        (Window(1), r"block\.1\.mixer\.window\.left = 1: .*at least two tokens"),
        (Window(3), r"encoder\.stack\.block = .*6.*every window divides the widest"),
    ],
)
def test_windows_that_their_class_cannot_hold_are_refused(window, message):
    r = tiny()
    r.encoder.stack.block[1].mixer.window = window
    with pytest.raises(RecipeError, match=message):
        huggingface.FAMILIES["longformer"].write(r)


def test_what_else_their_class_cannot_hold_is_refused():
    family = huggingface.FAMILIES["longformer"]
    r = tiny()
    r.encoder.stack.block[2].mixer = Attention(4)
    with pytest.raises(RecipeError, match=r"block\.2\.mixer = Attention: every layer has global tokens"):
        family.write(r)
    r = tiny()
    r.encoder.stack.block[2].mixer.heads = 2
    with pytest.raises(RecipeError, match=r"encoder\.stack\.block\.mixer\.heads = 4 in layer 0 and 2 in layer 2"):
        family.write(r)
    r = tiny()
    r.objective.corruption, r.objective.losses = Shift(), (NextToken(),)
    with pytest.raises(RecipeError, match=r"objective\.corruption = Shift: the Hugging Face class looks both ways"):
        family.write(r)
    r = tiny()
    r.encoder.stack.share = replace(r.encoder.stack.share, attention=1)
    with pytest.raises(RecipeError, match=r"stack\.share\.attention = 1: .*no such part"):
        family.write(r)


@pytest.mark.parametrize("name", ["bert_tiny", "albert_mini", "gpt_mini", "transformer_xl_mini", "xlnet_mini"])
def test_windows_without_global_tokens_are_not_lost_on_the_way(name, tmp_path):
    """No class of theirs has them."""
    r = recipe(name)
    r.encoder.vocab = 97
    block = r.encoder.stack.block_at(0)
    block.mixer = replace(block.mixer, window=Window(4))
    with pytest.raises(RecipeError, match=r"encoder\.stack\.block\.mixer.* = .*no such part"):
        huggingface.write(tmp_path, build(r), r, 0)


@pytest.mark.parametrize("windows", [[4, 8], [4, 8, 7], 0])
def test_a_config_with_other_windows_is_refused(windows, tmp_path):
    their_model("LongformerModel").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "attention_window": windows}))
    with pytest.raises(InputError, match="an even window for each of 3 layers is needed"):
        load(tmp_path)


def test_a_mask_of_global_tokens_is_refused_where_it_says_nothing(tmp_path):
    r = recipe("bert_tiny")
    r.encoder.vocab = 97
    ids = torch.full((2, 6), 5)
    with pytest.raises(InputError, match="no layer of the model has global tokens"):
        TextEncoder(build(r), None, r).forward(ids, global_attention_mask=torch.ones_like(ids))
    r = tiny()
    with pytest.raises(InputError, match=r"\[2, 5\]; a number for each token, \[2, 6\], is needed"):
        TextEncoder(build(r), None, r).forward(ids, global_attention_mask=torch.ones(2, 5))


@pytest.mark.slow
def test_full_size(tmp_path):
    r = recipe("longformer_base")
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path, format="hf")
    theirs = transformers.LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    assert sum(p.numel() for p in theirs.parameters()) == 148_711_257
    compare(theirs, ours, inputs(700, marks=True))
