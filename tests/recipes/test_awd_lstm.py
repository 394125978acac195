"""A language model of dropped LSTMs: its size, torch's numbers, and the three stages that end in a classifier."""

import copy
import dataclasses
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.core.spec import walk
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.optim.parameter_groups import count_blocks, layers_below
from clozeworks.optim.settings import AdamW, LayerRates, SlantedTriangular
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.recipes.awd_lstm import awd_lstm
from clozeworks.tasks.summary import Summary
from clozeworks.train.finetune.continue_pretraining import make_recipe
from clozeworks.train.finetune.entry import plan
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.train import finetune_run
from clozeworks.train.pretrain import pretrain
from tests.labelled import rows
from tests.train.conftest import data as data
from tests.train.conftest import one_thread as one_thread

VOCAB = 50


def small(dropped: bool = True) -> Recipe:
    """The recipe in its own shape, with widths 8, 12, 12, 8."""
    r = cw.recipe("awd_lstm_mini")
    r.encoder.vocab, r.encoder.width = VOCAB, 8
    for layer, width in enumerate((12, 12, 8)):
        mixer = r.encoder.stack.block_at(layer).mixer
        assert isinstance(mixer, LSTM)
        mixer.width = width
    r.objective.segments.length, r.objective.segments.streams = 16, 4
    r.train.steps, r.train.batch_tokens, r.train.precision = 8, 64, "fp32"
    r.train.log_every, r.train.save_every, r.train.evaluate_every = 1, 3, 8
    if not dropped:
        r.encoder.embed.word_dropout = r.encoder.stack.dropout = 0.0
        for _, part in walk(r):
            if isinstance(part, LSTM):
                part.weight_drop = part.locked = 0.0
    return r


@pytest.mark.parametrize("vocab", [10_000, 33_278, 60_000])
def test_parameters(vocab: int):
    """By the formula; with torch's second bias, 24 and 33 million for the vocabularies of the paper (its table 1)."""
    r = cw.recipe("awd_lstm")
    r.encoder.vocab = vocab
    words, widths = 400, (400, 1150, 1150, 400)
    layers = sum(4 * out * (into + out + 1) for into, out in pairwise(widths))
    assert count_parameters(r) == vocab * (words + 1) + layers
    assert count_parameters(r, heads=False) == vocab * words + layers
    with torch.device("meta"):
        theirs = [nn.LSTM(into, out) for into, out in pairwise(widths)]
    second = sum(4 * out for out in widths[1:])
    assert sum(p.numel() for each in theirs for p in each.parameters()) == layers + second
    millions = {10_000: 24, 33_278: 33, 60_000: 44}
    assert (count_parameters(r) + second) // 10**6 == millions[vocab]
    if vocab == cw.recipe("awd_lstm").encoder.vocab:
        assert f"{count_parameters(r):,} parameters" in (awd_lstm.__doc__ or "")


class Plain(nn.Module):
    """The same by torch's own modules."""

    def __init__(self, model: nn.Module):
        super().__init__()
        own = dict(model.named_parameters())
        self.words = own["encoder.embed.words.table.weight"]
        self.bias = own["heads.next_token.bias"]
        self.layers = nn.ModuleList()
        for layer in range(3):
            enter, state, bias = (
                own[f"encoder.stack.blocks.{layer}.mixer.{name}"] for name in ("enter", "state", "bias")
            )
            lstm = nn.LSTM(enter.shape[1], state.shape[1], batch_first=True)
            weights = {"weight_ih_l0": enter, "weight_hh_l0": state, "bias_ih_l0": bias}
            lstm.load_state_dict(weights | {"bias_hh_l0": torch.zeros_like(bias)})
            self.layers.append(lstm)

    def forward(self, tokens: Tensor, states: list | None = None) -> tuple[Tensor, list]:
        x, ends = self.words[tokens], []
        for n, layer in enumerate(self.layers):
            x, end = layer(x, None if states is None else states[n])
            ends.append(tuple(each.detach() for each in end))
        return x, ends


def stream(tokens: Tensor, continues: bool) -> Batch:
    batch = from_padded(tokens[:, :-1], kind="causal")
    batch.targets, batch.labels = torch.arange(tokens[:, 1:].numel()), tokens[:, 1:].flatten()
    batch.example = {"stream": torch.arange(len(tokens)), "continues": torch.tensor([continues] * len(tokens))}
    return batch


def test_without_dropout_it_is_torchs_lstm_with_a_tied_table_and_states_that_continue():
    model = build(small(dropped=False))
    theirs, segment_memory, states = Plain(model), SegmentMemory(), None
    torch.manual_seed(3)
    text = torch.randint(0, VOCAB, (4, 31))
    for start in (0, 15):
        batch = stream(text[:, start : start + 16], start > 0)
        output = model(segment_memory.give(batch), DropoutKey.make(0, start, rows=range(4)))
        segment_memory.take(batch, output.hidden.memory)
        x, states = theirs(batch.tokens, states)
        torch.testing.assert_close(output.hidden.last, x)
        expected = F.cross_entropy((x @ theirs.words.T + theirs.bias).flatten(0, 1), batch.labels, reduction="sum")
        torch.testing.assert_close(output.losses["next_token"], expected)
        torch.testing.assert_close(output.losses["activation_size"] / x.shape[:2].numel(), x.square().mean())
        change = output.losses["activation_change"] / (4 * 14)
        torch.testing.assert_close(change, (x[:, 1:] - x[:, :-1]).square().mean())
    whole = stream(text, False)
    joined = model(whole).hidden.last[:, 15:]
    torch.testing.assert_close(output.hidden.last, joined, msg="two rows that continue are one long row")


def test_every_dropout_of_the_paper_has_its_say():
    base = small()
    key, batch = DropoutKey.make(0, 1, rows=range(4)), stream(torch.randint(0, VOCAB, (4, 16)), False)
    plain = build(small(dropped=False))(batch, key).losses["next_token"]
    for path in ("word", "weight", "locked", "out"):
        r = small(dropped=False)
        if path == "word":
            r.encoder.embed.word_dropout = 0.3
        elif path == "out":
            r.encoder.stack.dropout = 0.3
        else:
            for layer in range(3):
                setattr(r.encoder.stack.block_at(layer).mixer, "weight_drop" if path == "weight" else "locked", 0.3)
        assert not torch.equal(build(r)(batch, key).losses["next_token"], plain), path
    model = build(base)
    losses = [model(batch, DropoutKey.make(0, step, rows=range(4))).losses["next_token"] for step in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]
    assert model(batch).losses["next_token"] == plain, "held-out text is read with all there is"


def test_a_resumed_run_ends_with_the_same_weights(data: Path, tmp_path: Path):
    r = small()

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 4:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    whole = pretrain(r, [(data, 1.0)], tmp_path / "whole", progress=False)
    pretrain(r, [(data, 1.0)], tmp_path / "cut", progress=False, writers=[Stop()])
    cut = pretrain(r, [(data, 1.0)], tmp_path / "cut", progress=False)
    assert cut.resumed == 4
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (whole.checkpoint / file).read_bytes() == (cut.checkpoint / file).read_bytes()


@pytest.fixture(scope="module")
def encoder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    run = tmp_path_factory.mktemp("awd") / "run"
    pretrain(small(), [(data, 1.0)], run, progress=False)
    return cw.load(run)


def test_the_last_stage_is_that_of_the_paper(encoder: TextEncoder):
    made = plan("classify", encoder, rows(), options=FinetuneOptions(gradual_unfreezing=True, max_length=32))
    assert made.task.summary == Summary("concat", "own", "relu", early=True, width=50)
    assert made.task.template.opening == made.task.template.closing == ("[SEP]",), (
        "as between the documents of the stream"
    )
    train = made.recipe.train
    assert train.optimizer == LayerRates(AdamW(betas=(0.7, 0.99)), 1 / 2.6)
    assert isinstance(train.schedule, SlantedTriangular)
    assert train.learning_rate == 1e-2
    model = build(made.recipe)
    shapes = {name: tuple(p.shape) for name, p in model.heads.named_parameters()}
    assert shapes["classify.summary.dense.weight"] == (50, 3 * 8)
    assert shapes["classify.out.weight"] == (2, 50)
    with pytest.raises((RecipeError, InputError), match="widths 8, 12 have no sum"):
        plan("classify", encoder, rows(), options=FinetuneOptions(features="mix", max_length=32))


def test_the_stage_between_has_the_rates_of_layers_too(encoder: TextEncoder):
    plain = make_recipe(encoder.recipe, 100)
    assert plain.train.optimizer == encoder.recipe.train.optimizer
    assert plain.train.learning_rate == 4e-3
    made = make_recipe(encoder.recipe, 100, FinetuneOptions(gradual_unfreezing=True))
    assert made.train.optimizer == LayerRates(encoder.recipe.train.optimizer, 1 / 2.6)
    assert isinstance(made.train.schedule, SlantedTriangular)
    assert made.objective == encoder.recipe.objective


def test_layers_stay_bit_for_bit_until_their_time_the_embedding_longest(encoder: TextEncoder, tmp_path: Path):
    made = plan(
        "classify",
        encoder,
        rows(12),
        options=FinetuneOptions(gradual_unfreezing=True, max_length=32, batch_size=8, dev_share=0),
    )
    recipe = copy.deepcopy(made.recipe)
    recipe.train.keep.last, recipe.train.save_every, recipe.train.steps = 100, 1, 12
    each = recipe.finetune.unfreeze_every
    assert each == 2
    finetune_run(recipe, made.tokenizer, made.train, None, tmp_path / "run", source=made.encoder, progress=False)
    begun: dict[str, int] = {}
    before = {f"encoder.{name}": p.detach() for name, p in made.encoder.model.encoder.named_parameters()}
    for step in range(1, 13):
        now = dict(cw.load(tmp_path / "run" / f"step-{step:08}").model.named_parameters())
        for name, old in before.items():
            if not now[name].equal(old):
                begun.setdefault(name, step)
    depth = count_blocks(made.encoder.model)
    assert depth == 3
    assert begun == {name: layers_below(name, depth) * each + 1 for name in before}
    assert begun["encoder.embed.words.table.weight"] == max(begun.values()) == 9


def test_a_text_is_read_alike_alone_and_beside_others(encoder: TextEncoder):
    """Packed, padded or alone."""
    model = encoder.model
    texts = [torch.randint(0, VOCAB, (length,)) for length in (5, 3, 9)]
    padded = torch.zeros(3, 9, dtype=torch.long)
    real = torch.zeros(3, 9, dtype=torch.long)
    for n, text in enumerate(texts):
        padded[n, : len(text)], real[n, : len(text)] = text, 1
    batch = from_padded(padded, real, kind="causal")
    with torch.no_grad():
        together = model.read(batch, ()).last
        for n, text in enumerate(texts):
            alone = model.read(from_padded(text[None], kind="causal"), ()).last
            torch.testing.assert_close(together[n, : len(text)], alone[0])


def test_all_three_stages(encoder: TextEncoder, tmp_path: Path):
    tuned = cw.finetune(
        "classify",
        encoder,
        rows(),
        out=tmp_path / "run",
        gradual_unfreezing=True,
        continue_pretraining=2,
        epochs=5,
        max_length=32,
        dev_share=0.1,
        progress=False,
    )
    assert tuned.finished
    further = cw.load(tmp_path / "run" / "continued").recipe
    assert further.train.steps == 2
    assert dataclasses.asdict(further.train.optimizer)["factor"] == 1 / 2.6
    assert 0 <= tuned.metrics["accuracy"] <= 1
    assert set(tuned.model.predict(["the fox"])[0]) >= {"label", "scores"}
