"""Recipes that write, made of encoders; and what they begin from."""

import dataclasses

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_outputs
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.model import Model
from clozeworks.nn.mixers.attention import Attention
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.starts.transfer import transfer
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.generation import Search
from clozeworks.tasks.seq2seq import Seq2Seq
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.seq2seq import join_models
from clozeworks.train.finetune.train import finetune_run
from tests.tasks.test_seq2seq import lively, logits, small, table, tokenizer

__all__ = ["tokenizer"]


def made_of(base: Recipe, tokenizer: Tokenizer, form: str = "decoder", other: Recipe | None = None, **more) -> Recipe:
    template = dataclasses.replace(infer_template(base, tokenizer), length=32)
    task = Seq2Seq.for_encoder(PretrainedEncoder(base, template, architecture=form))  # pyright: ignore[reportArgumentType]
    task = dataclasses.replace(task, target_length=8, search=Search(2), **more)
    return make_finetune_recipe(base, task, 4, Finetune(1, 4), Train(guard=None), decoder=other)


def shared(model: Model) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def test_the_decoder_starts_as_the_encoder(tokenizer: Tokenizer):
    base = small(tokenizer)
    source, made = build(base), made_of(base, tokenizer)
    model = build(made)
    fresh = {name: value.detach().clone() for name, value in model.named_parameters()}
    notes = transfer(source, model)
    assert notes == ["the decoder starts as the encoder, its cross-attention from fresh weights"]
    theirs = shared(source)
    for name, value in model.named_parameters():
        if ".cross" in name:
            assert value.equal(fresh[name])
        elif name.startswith("heads.seq2seq.words."):
            assert value.equal(theirs[name.replace("seq2seq.words", "masked_lm")])
        else:
            assert value.equal(theirs[name.replace("decoder.", "encoder.")])
    assert made.decoder is not None
    assert made.decoder.stack.depth == base.encoder.stack.depth
    assert made.decoder.embed == base.encoder.embed
    attention = base.encoder.stack.block_at(0).mixer
    assert isinstance(attention, Attention)
    assert made.decoder.stack.block_at(0).cross == Attention(attention.heads, attention.dropout)


def test_one_embedding_for_both_sides(tokenizer: Tokenizer):
    base = small(tokenizer)
    two, one = (made_of(base, tokenizer, share=share) for share in (False, True))
    assert one.decoder is not None
    assert one.decoder.embed is None
    embedding = sum(p.numel() for p in build(base).encoder.embed.parameters())
    assert count_parameters(two) - count_parameters(one) == embedding
    model = build(one)
    transfer(build(base), model)
    assert model.top.embed is model.encoder.embed


def test_two_checkpoints(tokenizer: Tokenizer, tmp_path):
    base, deeper = small(tokenizer), small(tokenizer)
    deeper.encoder.stack.depth, deeper.train.seed = 3, 5
    made = made_of(base, tokenizer, other=deeper)
    assert made.decoder is not None
    assert (made.encoder.stack.depth, made.decoder.stack.depth) == (2, 3)
    encoder, decoder = (TextEncoder(build(one), tokenizer, one) for one in (base, deeper))
    joined, notes = join_models(made, encoder, decoder)
    assert notes == ["the decoder starts as another encoder, its cross-attention from fresh weights"]
    both = shared(joined.model)
    first, second = shared(encoder.model), shared(decoder.model)
    for name, value in first.items():
        if name.startswith("encoder.") and "pooler" not in name:
            assert both[name].equal(value)
    for name, value in second.items():
        if name.startswith("encoder.") and "pooler" not in name:
            assert both[name.replace("encoder.", "decoder.", 1)].equal(value)
    assert both["heads.seq2seq.words.dense.weight"].equal(second["heads.masked_lm.dense.weight"])
    made.train.learning_rate = 1e-12
    finetune_run(made, tokenizer, table(4), None, tmp_path / "run", source=joined, progress=False)
    for name, value in cw.load(tmp_path / "run").model.named_parameters():
        torch.testing.assert_close(value, both[name], rtol=0, atol=1e-6)


def test_decoders_that_do_not_fit_are_refused(tokenizer: Tokenizer):
    base = small(tokenizer)
    wider, other = small(tokenizer), small(tokenizer)
    wider.encoder.width = 64
    with pytest.raises(InputError, match=r"width: 64; the encoder has 128"):
        made_of(base, tokenizer, other=wider)
    with pytest.raises(InputError, match="one stack reads and writes"):
        made_of(base, tokenizer, "prefix", other)
    strange = Tokenizer.train(["x y z"], "words", vocab=64)
    made = made_of(base, tokenizer, other=other)
    with pytest.raises(InputError, match="another tokenizer"):
        join_models(made, TextEncoder(build(base), tokenizer, base), TextEncoder(build(other), strange, other))


def test_a_model_that_writes_is_trained_further(tokenizer: Tokenizer):
    base = small(tokenizer, "transformer_mini")
    base.encoder.width = 64
    made = made_of(base, tokenizer)
    assert made.decoder == base.decoder
    task = made.task
    assert task is not None
    assert task.template.opening == ()
    model = build(made)
    assert transfer(build(base), model) == []
    again = made_of(made, tokenizer)
    assert transfer(model, build(again)) == []


FAST = {("albert_mini", "decoder"), ("albert_mini", "prefix"), ("gpt_mini", "prefix"), ("xlnet_mini", "prefix")}
REFUSED = {
    ("transformer_mini", "prefix"): "the decoder would have no source",
    ("lite_transformer_mini", "prefix"): "the decoder would have no source",
    ("adaptive_span_mini", "decoder"): "it reads one way",
    ("xlnet_mini", "decoder"): "second stream has no source",
    ("reformer_mini", "decoder"): "a third branch has no stream",
    ("awd_lstm_mini", "decoder"): "no heads that attention to a source",
    ("elmo_mini", "decoder"): "no heads that attention to a source",
    ("elmo_mini", "prefix"): "reads characters",
    ("rnn_attention_mini", "prefix"): "the decoder would have no source",
    ("rnn_fixed_mini", "prefix"): "the decoder would have no source",
    ("rnn_luong_mini", "prefix"): "the decoder would have no source",
}
FAMILIES = sorted(name for name in cw.recipes() if name.endswith(("_mini", "_tiny")))


def families() -> list:
    pairs = [(name, form) for name in FAMILIES for form in ("decoder", "prefix")]
    return [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow, id="-".join(pair)) for pair in pairs]


@pytest.mark.parametrize(("name", "form"), families())
def test_every_family_writes_as_it_reads(tokenizer: Tokenizer, name: str, form: str):
    """What a search gives alone is what it gives among others, and as likely as teacher forcing says."""
    base, rows = small(tokenizer, name), table(5, most=6)
    base.encoder.stack.depth = min(base.encoder.stack.depth, 2)
    if (name, form) in REFUSED:
        with pytest.raises(RecipeError, match=REFUSED[name, form]):
            made_of(base, tokenizer, form)
        return
    made = made_of(base, tokenizer, form)
    task = made.task
    assert isinstance(task, Seq2Seq)
    transfer(build(base), build(made))
    model = lively(made).double()
    labelled = task.examples(rows, tokenizer, truth=False)
    together, _ = predict_outputs(model, task, labelled, "full", 0)
    longer = dataclasses.replace(task, target_length=12)
    answers, read = task.answers(together, labelled, rows), 0
    for at, answer in enumerate(answers):
        alone, _ = predict_outputs(model, task, task.examples(rows.some([at]), tokenizer, truth=False), "full", 0)
        np.testing.assert_allclose(alone[0], together[at], rtol=1e-6, atol=1e-6)
        if answer["text"]:
            row = Table("x", [{"source": rows.rows[at]["source"], "target": answer["text"]}])
            tokens = torch.from_numpy(together[at][1:]).long()
            scores = logits(model, longer, row, tokenizer)[0][0].log_softmax(-1)[: len(tokens)]
            assert float(scores.gather(1, tokens[:, None]).sum()) == pytest.approx(answer["score"], rel=1e-6, abs=1e-6)
            read += 1
    assert read
