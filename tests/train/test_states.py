"""States of recurrent layers in training: carried on, both ways, saved, and the same after a stop."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clozeworks
from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.exchange import checkpoint
from clozeworks.inference.text_encoder import load
from clozeworks.nn.block import Block
from clozeworks.nn.characters import Characters, CharactersLayer
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.losses.next_word import NextWord
from clozeworks.objectives.segments import FullSentences, Stream
from clozeworks.optim.keep import Keep
from clozeworks.recipe import Recipe
from clozeworks.recipes import recipe as named
from clozeworks.train import metrics_log
from clozeworks.train.checkpoint import distributed_checkpoint
from clozeworks.train.pretrain import pretrain
from tests.train.test_segment_memory import distance, losses, trained, weights

LENGTH, STREAMS, WIDTH, CELLS = 8, 4, 16, 24


def reading(steps: int = 12, **train: object) -> Recipe:
    """Both ways, two streams each."""
    r = named("elmo_mini")
    r.encoder.width = WIDTH
    for block in (r.encoder.stack.block_at(layer) for layer in range(2)):
        block.mixer = LSTM(CELLS, clip=3.0, clip_out=3.0)
    r.encoder.embed.words = Characters(((1, 4), (3, 8)), width=4, highways=1, length=20)
    r.objective.segments, r.objective.losses = Stream(LENGTH, STREAMS, both=True), (NextWord(samples=20),)
    own = {"steps": steps, "batch_tokens": STREAMS * LENGTH, "precision": "fp32", "save_every": 5, "log_every": 1}
    for name, value in {**own, "evaluate_every": 6, "keep": Keep(99), **train}.items():
        setattr(r.train, name, value)
    return r


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(reading(), [(data, 1.0)], run, progress=False).finished
    return run


def test_a_stopped_run_continues_bit_for_bit(whole: Path, data: Path, tmp_path: Path):
    kept = load_file(whole / "step-00000005" / checkpoint.MEMORY)
    assert kept["stream"].tolist() == list(range(STREAMS))
    assert kept["layer.0.h"].shape == (STREAMS, WIDTH)
    assert kept["layer.1.c"].shape == (STREAMS, CELLS)
    assert float(kept["layer.1.c"].abs().min(1).values.max()) > 0
    shutil.copytree(whole, run := tmp_path / "run")
    for step in (10, 12):
        shutil.rmtree(run / checkpoint.name_of(step))
    result = pretrain(reading(), [(data, 1.0)], run, progress=False)
    assert (result.resumed, result.step) == (5, 12)
    assert weights(result.checkpoint) == weights(whole / "step-00000012")
    assert losses(run) == losses(whole)


def test_without_its_states_it_would_be_another_run(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(whole, run := tmp_path / "run")
    for step in (10, 12):
        shutil.rmtree(run / checkpoint.name_of(step))
    monkeypatch.setattr(SegmentMemory, "load", lambda *_: None)
    result = pretrain(reading(), [(data, 1.0)], run, progress=False)
    assert weights(result.checkpoint) != weights(whole / "step-00000012")


def test_accumulation_is_one_batch(data: Path):
    """The same candidates, states and units dropped, however a step is cut."""
    (model, steps, segment_memory), *others = [
        trained(reading(micro_tokens=micro), data, 5) for micro in (None, 2 * LENGTH, LENGTH)
    ]
    for other, their_steps, theirs in others:
        assert distance(model, other) < 2e-6
        assert [s.loss for s in their_steps] == pytest.approx([s.loss for s in steps], rel=1e-5)
        torch.testing.assert_close(theirs.state(), segment_memory.state(), atol=1e-5, rtol=1e-4)


def test_words_are_written_as_the_tokenizer_has_them(whole: Path):
    encoder = load(whole)
    words = encoder.model.encoder.embed.words
    assert isinstance(words, CharactersLayer)
    number = encoder.tokenizer.size - 1
    name = encoder.tokenizer.token(number).encode()
    assert bytes(words.spelling[number].tolist())[1 : len(name) + 1] == name
    assert encoder.kind == "full"
    assert [row["split"] for row in metrics_log.read(whole / "metrics.jsonl") if "perplexity" in row] == ["heldout"] * 2


def test_room_is_asked_for_the_states():
    assert distributed_checkpoint.memory_bytes(reading()) == 4 * STREAMS * 2 * (WIDTH + CELLS)
    wide = clozeworks.recipe("awd_lstm")  # 1150, 1150 and 400 units, each with as many cells
    assert distributed_checkpoint.memory_bytes(wide) == 4 * wide.objective.segments.streams * 2 * (1150 + 1150 + 400)


def test_what_makes_no_sense_is_refused():
    r = reading()
    r.objective.segments = Stream(LENGTH, STREAMS)
    with pytest.raises(RecipeError, match=r"segments = Stream: nothing would be read from its end; use Stream\(both"):
        spec.check(r, "r")
    r.objective.segments = FullSentences(LENGTH)
    with pytest.raises(RecipeError, match="do not continue where others ended"):
        spec.check(r, "r")
    r = reading()
    r.objective.losses = (NextToken(tied=False),)
    with pytest.raises(RecipeError, match="reads characters; use NextWord"):
        spec.check(r, "r")
    r.encoder.embed.words = None
    with pytest.raises(RecipeError, match=r"rows are read one way each.*use NextWord"):
        spec.check(r, "r")
    r = reading()
    r.encoder.stack = Stack(1, Block(LSTM(), None, norm=None), memory=1)
    r.objective.segments = Stream(LENGTH, STREAMS)
    with pytest.raises(RecipeError, match="by a stack with two; use NextToken"):
        spec.check(r, "r")


def test_one_way_alone_is_an_ordinary_language_model(data: Path):
    """A recurrent stack with a table of words and the usual loss."""
    r = reading()
    r.encoder.stack = Stack(2, Block(LSTM(), None, norm=None, dropout=0.0), memory=1)
    r.encoder.embed.words, r.objective.losses, r.start = None, (NextToken(),), ()  # without a bias that has a prior
    r.objective.segments = Stream(LENGTH, STREAMS)
    spec.check(r, "r")
    assert r.reading == "causal"
    _, steps, segment_memory = trained(r, data, 8)
    assert steps[-1].loss < steps[0].loss
    assert segment_memory.state()["layer.1.h"].shape == (STREAMS, WIDTH)
