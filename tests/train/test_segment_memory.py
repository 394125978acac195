"""Memory in training: carried, forgotten, saved, and the same in any number of processes."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.process_group import ProcessGroup
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.exchange import checkpoint
from clozeworks.model import Model
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import DocSentences, Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim import parameter_groups
from clozeworks.optim.guard import Guard
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe as named
from clozeworks.train import metrics_log
from clozeworks.train.checkpoint import distributed_checkpoint
from clozeworks.train.loop import Policy, fit
from clozeworks.train.pretrain import fit_to_data, open_data, pretrain
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.step import Step
from tests.train.conftest import tiny_recipe
from tests.train.test_distributed import group

LENGTH, STREAMS, MEMORY = 16, 4, 24


def remembering(steps: int = 12, memory: int = MEMORY, **train: object) -> Recipe:
    """A model that reads one way, without positions, four streams side by side."""
    r = tiny_recipe(steps, **{"batch_tokens": STREAMS * LENGTH, "micro_tokens": None, **train})
    r.objective = Objective(Stream(LENGTH, STREAMS), Shift(), (NextToken(),))
    r.encoder.embed.positions, r.encoder.embed.segments, r.encoder.pooler = None, 0, None
    r.encoder.stack.memory = memory
    return r


def trained(recipe: Recipe, data: Path, steps: int, **more) -> tuple[Model, list[Step], SegmentMemory]:
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe, segment_memory = fit_to_data(recipe, tokenizer), more.pop("memory", SegmentMemory())
    model = build(recipe)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    feed = PretrainingBatches(recipe, corpora, tokenizer.vocabulary())
    batches = iter(feed)
    policy = Policy(clip=1.0, memory=segment_memory, **more)
    done = list(fit(model, batches, adam, lambda step: 1e-3, steps=steps, policy=policy))
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    return model, done, segment_memory


def distance(one: Model, other: Model) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def test_accumulation_is_one_batch(data: Path):
    """Dropout of attention's weights is left out: the rows beside a row have a say in it."""
    runs = []
    for micro in (None, 2 * LENGTH, LENGTH):
        recipe = remembering(micro_tokens=micro)
        recipe.encoder.stack.block_at(0).mixer.dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue]
        runs.append(trained(recipe, data, 6))
    (model, steps, segment_memory), *others = runs
    for other, their_steps, theirs in others:
        assert distance(model, other) < 2e-6
        assert [s.loss for s in their_steps] == pytest.approx([s.loss for s in steps], rel=1e-5)
        torch.testing.assert_close(theirs.state(), segment_memory.state(), atol=1e-5, rtol=1e-4)


def test_the_memory_is_of_use_and_continues_within_a_step(data: Path):
    """Two time steps in one update: the second remembers the first."""
    losses = [trained(remembering(memory=memory, batch_tokens=2 * STREAMS * LENGTH), data, 1, dropout=False)[1][0].loss
              for memory in (0, LENGTH)]  # fmt: skip
    assert losses[0] != losses[1]
    _, _, segment_memory = trained(remembering(batch_tokens=2 * STREAMS * LENGTH), data, 1)
    assert segment_memory.length == MEMORY, "of 32 tokens read in one step"


def test_an_epoch_begins_with_nothing(data: Path):
    """Rows that begin a stream are read as by a model without any memory."""
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(remembering(400), tokenizer)
    segment_memory, given = SegmentMemory(), []
    model = build(recipe)
    for (batch,) in PretrainingBatches(recipe, corpora, tokenizer.vocabulary()):
        now = segment_memory.give(batch)
        assert (now.past is None) == (not batch.example["continues"].any())
        given.append(now.past is None)
        segment_memory.take(batch, model.encoder(now.tokens, now.token_info, now.context()).memory)
        if sum(given) == 2:
            break
    assert given.count(True) == 2
    assert given[0]
    assert given[-1]


@pytest.mark.parametrize("way", ["refused", "passed over"])
def test_a_step_that_changes_nothing_leaves_nothing_behind(data: Path, way: str, monkeypatch: pytest.MonkeyPatch):
    from clozeworks.train.guard import SkippedRange, SpikeGuard, Verdict

    watch = SpikeGuard()
    if way == "refused":
        monkeypatch.setattr(
            SpikeGuard, "__call__", lambda self, number, *_: Verdict("skip" if number == 3 else "update")
        )
    else:
        watch.passed.append(SkippedRange(3, 3, 3, 1, "a test"))
    segment_memory, lengths, gave = SegmentMemory(), [], []
    give = segment_memory.give
    monkeypatch.setattr(segment_memory, "give", lambda batch: gave.append(give(batch).past is None) or give(batch))
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(remembering(), tokenizer)
    model = build(recipe)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    feed = PretrainingBatches(recipe, corpora, tokenizer.vocabulary())
    for step in fit(model, feed, adam, lambda _: 1e-3, steps=5, policy=Policy(memory=segment_memory, guard=watch)):
        lengths.append(segment_memory.length)
        assert step.skipped == (step.number == 3)
    assert lengths == [16, 24, 0, 16, 24]
    assert gave == ([True, False, False, True, False] if way == "refused" else [True, False, True, False])


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from clozeworks.optim.keep import Keep

    torch.set_num_threads(1)
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(remembering(keep=Keep(99)), [(data, 1.0)], run, progress=False).finished
    return run


def weights(path: Path) -> list[bytes]:
    return [(path / name).read_bytes() for name in (checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.MEMORY)]


def losses(run: Path) -> list[dict]:
    return [
        {k: v for k, v in row.items() if k not in metrics_log.TIMINGS}
        for row in metrics_log.read(run / "metrics.jsonl")
    ]


def interrupted(whole: Path, run: Path) -> Path:
    """A run that was stopped after step 5."""
    shutil.copytree(whole, run)
    for step in (10, 12):
        shutil.rmtree(run / checkpoint.name_of(step))
    return run


def test_a_resumed_run_remembers(whole: Path, data: Path, tmp_path: Path):
    kept = load_file(whole / "step-00000005" / checkpoint.MEMORY)
    assert kept["stream"].tolist() == list(range(STREAMS))
    assert kept["layer.1"].shape == (STREAMS, MEMORY, 32)
    run = interrupted(whole, tmp_path / "run")
    result = pretrain(remembering(), [(data, 1.0)], run, progress=False)
    assert (result.resumed, result.step) == (5, 12)
    assert weights(result.checkpoint) == weights(whole / "step-00000012")
    assert losses(run) == losses(whole)


def test_without_its_memory_it_would_be_another_run(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = interrupted(whole, tmp_path / "run")
    monkeypatch.setattr(SegmentMemory, "load", lambda *_: None)
    result = pretrain(remembering(), [(data, 1.0)], run, progress=False)
    assert weights(result.checkpoint) != weights(whole / "step-00000012")
    assert losses(run)[-1] != losses(whole)[-1]


def test_memory_is_verified_like_the_rest(whole: Path, data: Path, tmp_path: Path):
    shutil.copytree(whole, run := tmp_path / "run")
    file = run / "step-00000012" / checkpoint.MEMORY
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)
    with pytest.raises(checkpoint.DamagedError, match=r"the content of memory\.safetensors has changed"):
        checkpoint.verify(run / "step-00000012")
    assert checkpoint.newest(run).step == 10  # pyright: ignore[reportOptionalMemberAccess]
    file.unlink()
    with pytest.raises(checkpoint.DamagedError, match=r"memory\.safetensors is missing"):
        checkpoint.verify(run / "step-00000012")


def test_room_is_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = remembering()
    size = distributed_checkpoint.memory_bytes(recipe)
    assert size == 4 * MEMORY * STREAMS * 2 * 32
    model = build(recipe)
    weights = 3 * sum(parameter.nbytes for parameter in model.parameters()) + (1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, weights + size - 1))  # pyright: ignore[reportAttributeAccessIssue]
    checkpoint.expect_room(tmp_path, model)
    with pytest.raises(InputError, match="a checkpoint takes"):
        checkpoint.expect_room(tmp_path, model, size)


def test_going_back_brings_the_memory_back(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lasting trouble after step 10: from the checkpoint of step 5 it runs on as one that never saw steps 8 to 11."""
    from clozeworks.train.guard import SpikeGuard

    settings = Guard(window=4, patience=2)
    judge, loaded = SpikeGuard.__call__, []
    monkeypatch.setattr(
        SpikeGuard,
        "__call__",
        lambda self, n, loss, norm: judge(self, n, float("nan") if n in (10, 11) else loss, norm),
    )
    load = SegmentMemory.load
    monkeypatch.setattr(
        SegmentMemory, "load", lambda self, state, *more: loaded.append(state) or load(self, state, *more)
    )
    run = tmp_path / "run"
    result = pretrain(remembering(16, guard=settings), [(data, 1.0)], run, progress=False)
    assert result.finished
    assert len(loaded) == 1
    saved = load_file(run / "step-00000005" / checkpoint.MEMORY) if (run / "step-00000005").exists() else loaded[0]
    assert torch.equal(saved["layer.0"], loaded[0]["layer.0"])
    assert loaded[0]["stream"].tolist() == list(range(STREAMS))


REFUSED = [
    (DocSentences(LENGTH), Shift(), "rows of DocSentences do not continue where others ended; take segments=Stream"),
    (Stream(LENGTH, STREAMS), None, "what MaskTokens lets a model read has holes, and is read from both sides"),
]


@pytest.mark.parametrize(("segments", "corruption", "message"), REFUSED)
def test_memory_that_makes_no_sense_is_refused(segments, corruption, message: str):
    recipe = remembering()
    recipe.objective.segments = segments
    if corruption is None:
        recipe.objective = dataclasses.replace(named("roberta_mini").objective, segments=segments)
    with pytest.raises(RecipeError, match=r"stack\.memory = 24: " + message):
        spec.check(recipe, "r")
    recipe.encoder.stack.memory = 0
    spec.check(recipe, "r")
    recipe.encoder.stack.memory = -1
    with pytest.raises(RecipeError, match=r"memory = -1: 0 or more"):
        spec.check(recipe, "r")


def test_lanes_without_memory_are_plain_rows(data: Path, tmp_path: Path):
    result = pretrain(remembering(4, memory=0), [(data, 1.0)], tmp_path / "run", progress=False)
    assert result.finished
    assert not (result.checkpoint / checkpoint.MEMORY).exists()


def test_old_recipes_read_and_write_the_same():
    """`start` stands in no JSON as long as it is what it always was."""
    stack = remembering().encoder.stack
    assert "start" not in spec.to_dict(stack)
    stack.initial_memory = "zeros"
    assert spec.from_dict(json.loads(json.dumps(spec.to_dict(stack)))) == stack


def test_one_process_remembers_alone():
    rows = torch.arange(6).view(3, 2)
    assert torch.equal(ProcessGroup().rows(rows), rows)
    assert distributed_checkpoint.memory_files(ProcessGroup(), SegmentMemory()) == {}


# ---- several processes


@pytest.fixture(scope="module")
def steady(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recipe file and its run by one process; what attention drops depends on the rows beside a row, so nothing."""
    from clozeworks.optim.keep import Keep

    recipe = remembering(keep=Keep(99), micro_tokens=2 * LENGTH)
    recipe.encoder.stack.block_at(0).mixer.dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    folder = tmp_path_factory.mktemp("steady")
    (folder / "recipe.json").write_text(json.dumps(spec.to_dict(recipe)))
    torch.set_num_threads(1)
    pretrain(recipe, [(data, 1.0)], folder / "run", progress=False)
    return folder / "recipe.json", folder / "run"


def same(run: Path, reference: Path) -> None:
    result, wanted = run / "step-00000012", reference / "step-00000012"
    names = (checkpoint.MODEL, checkpoint.MEMORY)
    kept = [checkpoint.verify(result).tensors(name) for name in names]
    torch.testing.assert_close(kept, [checkpoint.verify(wanted).tensors(name) for name in names], atol=1e-5, rtol=1e-4)
    rows = [{row["step"]: row["loss"] for row in metrics_log.read(each / "metrics.jsonl")} for each in (run, reference)]
    assert rows[0] == pytest.approx(rows[1], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["replicate", "shard"])
def test_two_processes_remember_what_one_does(way: str, steady: tuple[Path, Path], data: Path, tmp_path: Path):
    """And what one of them saved, one alone can continue from, and the other way round."""
    recipe, reference = steady
    words = ["-m", "clozeworks", "pretrain", recipe, "--data", data, "--set", f"train.parallel={way}", "--out"]
    group(2, *words, tmp_path / "two")
    same(tmp_path / "two", reference)
    one = interrupted(tmp_path / "two", tmp_path / "one")
    alone = spec.from_dict(json.loads(recipe.read_text()))
    alone.train.parallel = way
    assert pretrain(alone, [(data, 1.0)], one, progress=False).resumed == 5
    same(one, reference)
    two = interrupted(reference, tmp_path / "again")
    group(2, *words, two)
    same(two, reference)
