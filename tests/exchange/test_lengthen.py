"""From short texts to long ones: the same model where a window covers the text, and positions repeated end to end."""

import dataclasses

import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.errors import InputError
from clozeworks.exchange.lengthen import lengthen, refresh, repeat_rows
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.window import Window
from clozeworks.recipe import build
from clozeworks.recipes import recipe

SHORT = 24  # positions of the models that are converted


def encoder(name: str) -> TextEncoder:
    r = recipe(name)
    r.encoder.vocab, r.objective.segments.length = 97, SHORT
    r.encoder.embed.positions = LearnedPositions(SHORT, 2 if "roberta" in name else 0)
    model = build(r).eval()
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.1)
    return TextEncoder(model, None, r, {"heldout": {"loss": 1.0}, "data": {"tokens": 5}})


def inputs(length: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(length)
    ids, mask = torch.randint(5, 97, (3, length)), torch.ones(3, length, dtype=torch.long)
    mask[1, 1 + length // 2 :] = mask[2, 1:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}


@pytest.mark.parametrize("length", [1, 7, SHORT])
@pytest.mark.parametrize("name", ["roberta_mini", "bert_tiny", "albert_mini", "distilbert_mini"])
def test_where_the_window_covers_the_text_it_is_the_same_model(name, length):
    before = encoder(name)
    after, batch = lengthen(before, length=100, window=2 * SHORT), inputs(length)
    old, new, real = before.forward(**batch), after.forward(**batch), batch["attention_mask"].bool()
    for a, b in zip(old.hidden_states, new.hidden_states, strict=True):
        torch.testing.assert_close(a[real], b[real], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(old.logits[real], new.logits[real], atol=5e-6, rtol=1e-6)
    if old.seq_relationship_logits is not None:
        torch.testing.assert_close(old.seq_relationship_logits, new.seq_relationship_logits, atol=1e-6, rtol=1e-6)


def test_up_to_512_tokens_only_the_last_digits_differ():
    """RoBERTa's own positions, in double precision, by the window of the paper twice."""
    r = recipe("roberta_mini")
    r.encoder.vocab = 97
    before = TextEncoder(build(r).eval(), None, r)
    after, ids = lengthen(before, window=1024), torch.randint(5, 97, (1, 512))
    old, new = (TextEncoder(each.model.double(), None, each.recipe).forward(ids).logits for each in (before, after))
    torch.testing.assert_close(old, new, atol=1e-11, rtol=0)
    one = after.forward(torch.full((1, 1024), 7), logits=False).hidden_states[0][0]
    assert torch.equal(one[:512], one[512:])


def test_where_all_tokens_are_global_the_window_does_not_matter():
    before, batch = encoder("roberta_mini"), inputs(SHORT)
    after, real = lengthen(before, length=100, window=2), batch["attention_mask"].bool()
    seen = after.forward(**batch, global_attention_mask=batch["attention_mask"]).last_hidden_state[real]
    torch.testing.assert_close(seen, before.forward(**batch).last_hidden_state[real], atol=1e-6, rtol=1e-6)
    near = after.forward(**batch).last_hidden_state[real]
    assert (near - seen).abs().max() > 1e-3


@pytest.mark.parametrize("offset", [0, 2])
def test_positions_are_laid_end_to_end(offset):
    table = torch.arange(5.0 + offset)[:, None].expand(-1, 3)
    rows = [float(row) for row in range(offset)] + [float(offset + p % 5) for p in range(12)]
    assert repeat_rows(table, offset, 12)[:, 0].tolist() == rows
    assert repeat_rows(table, offset, 5).equal(table)


def test_its_own_recipe_rebuilds_it(tmp_path):
    before = encoder("albert_mini")
    after = lengthen(before, length=64, window=8)
    r = after.recipe
    assert (r.name, r.longest(), after.longest, r.train.batch_tokens) == ("albert_mini_long", 64, 64, 4096)
    assert [mixer.window for mixer in r.encoder.stack.mixers()] == [Window(4)] * 4
    assert after.facts == {"data": {"tokens": 5}}
    save(after, tmp_path)
    again, ids = load(tmp_path), torch.randint(5, 97, (1, 64))
    assert again.recipe == r
    assert torch.equal(after.forward(ids).last_hidden_state, again.forward(ids).last_hidden_state)
    added = cw.count_parameters(r) - cw.count_parameters(before.recipe)
    assert added == 3 * (256 * 256 + 256) + 40 * 128, "one layer has the projections of all"
    assert lengthen(encoder("roberta_mini"), length=8192).recipe.train.batch_tokens == 8192


def step(model: torch.nn.Module, marked: torch.Tensor | None) -> None:
    batch = from_padded(torch.randint(5, 97, (2, SHORT)), marked=marked)
    batch.targets, batch.labels = torch.tensor([1, 5, SHORT + 2]), torch.tensor([6, 7, 8])
    model.zero_grad()
    model(batch).losses["masked_lm"].backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad


def test_what_was_never_trained_is_copied_again():
    after = lengthen(encoder("roberta_mini"), length=64, window=8)
    mixer = after.model.encoder.stack.blocks[0].mixer
    before = mixer.query.weight.clone()
    step(after.model, None)
    assert torch.equal(mixer.query_global.weight, before), "no global token, no gradient"
    assert not torch.equal(mixer.query.weight, before)
    fresh = refresh(after)
    for block in fresh.model.encoder.stack.blocks:
        for name in ("query", "key", "value"):
            here, there = getattr(block.mixer, name), getattr(block.mixer, f"{name}_global")
            assert torch.equal(here.weight, there.weight)
            assert torch.equal(here.bias, there.bias)
            assert here.weight is not there.weight
    assert torch.equal(fresh.model.encoder.stack.blocks[0].mixer.query.weight, mixer.query.weight)
    assert fresh.facts == after.facts
    marked = torch.zeros(2, SHORT, dtype=torch.bool)
    marked[:, 0] = True
    step(after.model, marked)
    assert not torch.equal(mixer.query_global.weight, before), "with one they are trained"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("transformer_xl_mini", "Stack with memory; a plain stack of layers is needed"),
        ("gpt_mini", "reads one way; global tokens look both ways"),
        ("xlnet_mini", "TwoStream; a plain stack of layers is needed"),
    ],
)
def test_what_cannot_be_converted_is_refused(name, message):
    r = recipe(name)
    r.encoder.vocab = 97
    with pytest.raises(InputError, match=message):
        lengthen(TextEncoder(build(r), None, r))


def test_mistakes_are_refused():
    before = encoder("bert_tiny")
    with pytest.raises(InputError, match="window: 7; an even number of tokens"):
        lengthen(before, window=7)
    with pytest.raises(InputError, match="length: 12; the model has 24 positions already"):
        lengthen(before, length=12)
    with pytest.raises(InputError, match="no layer of it has global tokens"):
        refresh(before)
    with pytest.raises(InputError, match="a model with windows; one without is needed"):
        lengthen(lengthen(before, 48, 8), 48, 8)
    r = dataclasses.replace(before.recipe)
    r.encoder.embed.positions = None
    with pytest.raises(InputError, match="NoneType; a table of positions is needed"):
        lengthen(TextEncoder(before.model, None, r))
    with pytest.raises(InputError, match="to: reformer"):
        cw.convert(before, "reformer")


def test_their_class_reads_the_converted_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = cw.convert(encoder("bert_tiny"), length=64, window=8)
    save(ours, tmp_path, format="hf")
    theirs = transformers.LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    ids, marked = torch.randint(5, 97, (2, 61)), torch.zeros(2, 61, dtype=torch.long)
    marked[0, :3] = 1
    with torch.no_grad():
        expected = theirs(ids, global_attention_mask=marked).logits
    torch.testing.assert_close(ours.forward(ids, global_attention_mask=marked).logits, expected, atol=2e-5, rtol=1e-4)
