"""Several real processes against one: the same losses, norms, examples and weights, whatever holds the tensors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.process_group import LostError, ProcessGroup
from clozeworks.exchange import checkpoint
from clozeworks.inference import text_encoder
from clozeworks.nn.reversible import Reversible
from clozeworks.optim import parameter_groups
from clozeworks.recipe import build
from clozeworks.train import distributed, metrics_log
from clozeworks.train.pretrain import pretrain
from clozeworks.train.startup import processes
from tests.train.conftest import tiny_recipe
from tests.train.group import EACH, trained

ROOT = Path(__file__).parent.parent.parent
LIMIT = 240  # seconds after which a group that hangs is killed


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def group(size: int, *words: object) -> None:
    """Run a program in so many processes that know of each other, and end them all whatever happens."""
    port = processes.free_port()
    command = [sys.executable, *map(str, words)]
    children = [
        subprocess.Popen(command, env=environment(rank, size, port), stderr=subprocess.PIPE) for rank in range(size)
    ]
    try:
        for child in children:
            _, err = child.communicate(timeout=LIMIT)
            assert child.returncode == 0, err.decode()
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.fixture(scope="module")
def alone(data: Path) -> dict[str, Any]:
    """Each optimizer in one process: (figures, weights, state of the optimizer)."""
    torch.set_num_threads(1)
    results = {}
    for name in EACH:
        metrics, model, adam, _ = trained(ProcessGroup(), str(data), name)
        weights = {key: value.detach() for key, value in model.named_parameters()}
        results[name] = metrics, weights, parameter_groups.read_state(model, adam)
    return results


@pytest.fixture(scope="module")
def two(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    group(2, ROOT / "tests" / "train" / "group.py", data, out)
    return out


@pytest.mark.parametrize("way", ["replicate", "shard"])
def test_two_processes_give_what_one_gives(way: str, two: Path, alone: dict[str, Any]):
    report = json.loads((two / f"{way}.json").read_text())
    assert report["first"] == {"rank": 0}
    assert report["joined"] == [0, 1]
    assert report["totals"] == [1, 2]
    assert report["stopping"] == signal.SIGTERM, "a process that is asked to stop stops all"
    for name in EACH:
        if name not in report:
            continue
        (one, weights, state), result = alone[name], report[name]
        assert result["tokens"] == one["tokens"]
        assert [tuple(each) for each in result["examples"]] == one["examples"], "another order"
        assert result["loss"] == pytest.approx(one["loss"], abs=1e-5), name
        assert result["norm"] == pytest.approx(one["norm"], abs=1e-5), name
        for a, b in zip(result["metrics"], one["metrics"], strict=True):
            assert a == pytest.approx(b, abs=1e-5)
        saved = checkpoint.newest(two / f"{way}-{name}")
        assert saved is not None
        for file, wanted in ((checkpoint.MODEL, weights), (checkpoint.OPTIMIZER, state)):
            kept = saved.tensors(file)
            assert set(kept) == set(wanted)
            for key, value in wanted.items():
                torch.testing.assert_close(kept[key], value, rtol=1e-5, atol=1e-5, msg=f"{name} {key}")


def test_each_shard_writes_its_rows(two: Path, alone: dict[str, Any]):
    path = next((two / "replicate-adamw").glob("step-*"))
    whole = {checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE, checkpoint.MANIFEST}
    assert {file.name for file in path.iterdir()} == whole
    path = next((two / "shard-adamw").glob("step-*"))
    names = {file.name for file in path.iterdir()}
    parts = {f"{kind}-{rank}-of-2.safetensors" for kind in ("model", "optimizer") for rank in (0, 1)}
    assert names == {*parts, checkpoint.STATE, checkpoint.MANIFEST}
    table = "encoder.embed.words.table.weight"
    sizes = [len(load_file(path / f"model-{rank}-of-2.safetensors")[table]) for rank in (0, 1)]
    count = len(alone["adamw"][1][table])
    assert sizes == [-(-count // 2), count // 2]
    (path / "model-1-of-2.safetensors").rename(two / "away")
    with pytest.raises(checkpoint.DamagedError, match=r"model-1-of-2\.safetensors is missing"):
        checkpoint.verify(path)
    (two / "away").rename(path / "model-1-of-2.safetensors")


def test_one_process_alone_is_asked_for_nothing():
    world = ProcessGroup(asked=lambda: signal.SIGINT)
    assert (world.main, world.sharded, world.stopping, world.factor) == (True, False, signal.SIGINT, 1)
    assert world.totals([3, 4]) == [3, 4]
    assert world.joined((1,)) == (1,)
    code = "import sys, clozeworks.core.process_group; sys.exit('torch.distributed.fsdp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_processes_that_nobody_started_are_refused(data: Path, tmp_path: Path):
    with pytest.raises(RecipeError, match=r"train\.processes = 2: so many processes have to be started"):
        pretrain(tiny_recipe(processes=2), [(data, 1.0)], tmp_path / "run", progress=False)


def test_half_an_environment_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError, match="MASTER_ADDR: not set"):
        distributed.join("replicate", "cpu")


def test_what_torch_says_of_lost_processes_is_recognised():
    with pytest.raises(LostError, match="closed by peer"), distributed.lost():
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="a bug"), distributed.lost():
        raise RuntimeError("a bug")


def test_blocks_that_share_parameters_are_one_group():
    recipe = tiny_recipe()
    recipe.encoder.vocab = 50
    assert len(distributed.blocks_of(build(recipe))) == recipe.encoder.stack.depth
    recipe.encoder.stack.share.ffn = 1
    assert distributed.blocks_of(build(recipe)) == []


def test_blocks_that_are_computed_back_are_one_group():
    recipe = tiny_recipe()
    recipe.encoder.vocab, recipe.encoder.stack.block_at(0).place = 50, "pre"
    recipe.encoder.stack = Reversible(2, recipe.encoder.stack.block)
    assert distributed.blocks_of(build(recipe)) == []


# ---- whole runs


def command(run: Path, data: Path, recipe: Path, *more: object) -> list[str]:
    words = ["-m", "clozeworks", "pretrain", recipe, "--data", data, "--out", run, *more]
    return [sys.executable, *map(str, words)]


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = tiny_recipe(steps=40, save_every=4)
    recipe.encoder.stack.block_at(0).mixer.dropout = 0.0
    file = tmp_path_factory.mktemp("recipe") / "recipe.json"
    file.write_text(json.dumps(spec.to_dict(recipe)))
    return file


@pytest.fixture(scope="module")
def reference(recipe_file: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("reference") / "run"
    torch.set_num_threads(1)
    pretrain(spec.from_dict(json.loads(recipe_file.read_text())), [(data, 1.0)], run, progress=False)
    return run


def same(run: Path, reference: Path) -> None:
    """Weights and logged losses, whatever happened on the way."""
    newest, wanted = checkpoint.newest(run), checkpoint.newest(reference)
    assert newest is not None
    assert wanted is not None
    assert (newest.step, newest.state["position"]) == (wanted.step, wanted.state["position"])
    for file in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        for key, value in wanted.tensors(file).items():
            torch.testing.assert_close(newest.tensors(file)[key], value, rtol=1e-5, atol=1e-5)
    rows = [{row["step"]: row["loss"] for row in metrics_log.read(each / "metrics.jsonl")} for each in (run, reference)]
    assert rows[0] == pytest.approx(rows[1], abs=1e-5)


def started(words: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(child: subprocess.Popen[str], run: Path, step: int) -> None:
    """Wait for a row of a step beyond this one."""
    begin = time.monotonic()
    while not any(row["step"] > step for row in metrics_log.read(run / "metrics.jsonl")):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() - begin < LIMIT
        time.sleep(0.01)


def ranks(child: subprocess.Popen[str]) -> dict[int, int]:
    """Process ids of its children by rank."""
    results = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) != child.pid:
                continue
            values = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
            results[int(values["RANK"])] = int(folder.name)
        except (OSError, KeyError):
            continue
    return results


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("way", ["replicate", "shard"])
def test_a_run_continues_after_a_lost_process(way, recipe_file, data, reference, tmp_path):
    run = tmp_path / "run"
    child = started(command(run, data, recipe_file, "--processes", 2, "--set", f"train.parallel={way}"))
    try:
        until(child, run, 9)
        os.kill(ranks(child)[1], signal.SIGKILL)
        out, err = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
    assert child.returncode == 0, err
    assert "a process was lost (SIGKILL); starting all 2 again (1 of 3)" in err
    assert "Traceback" not in err
    assert "resuming from step" in out
    same(run, reference)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_it_saves_and_another_number_of_processes_continues(number, recipe_file, data, reference, tmp_path):
    run = tmp_path / "run"
    words = [(2, "replicate", None), (3, "shard", None), (2, "shard", 1), (1, "replicate", None)]
    for at, (size, way, rank) in enumerate(words):
        more = ["--processes", size, "--set", f"train.parallel={way}", "--set", f"train.micro_tokens={64 + 64 * at}"]
        child = started(command(run, data, recipe_file, *more))
        try:
            if at < 3:
                until(child, run, 8 * at + 1)
                # A stop that is asked of one of them stops all.
                os.kill(child.pid if rank is None else ranks(child)[rank], number)
            out, err = child.communicate(timeout=LIMIT)
        finally:
            child.kill()
        assert "Traceback" not in err
        if at < 3:
            assert child.returncode in (130, 143), (out, err)
            assert "run the same command again to resume" in out
        else:
            assert child.returncode == 0, err
    same(run, reference)


@pytest.mark.slow
def test_torchrun_starts_it_too(recipe_file, data, reference, tmp_path):
    run = tmp_path / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*torchrun, *command(run, data, recipe_file, "--set", "train.parallel=shard")[1:]]
    child = started(words)
    try:
        out, err = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
    assert child.returncode == 0, err
    assert out.count("trained ") == 1, "the first process alone reports"
    same(run, reference)
    assert text_encoder.load(run).model is not None


@pytest.mark.slow
def test_bad_input_is_reported_once(recipe_file, data, reference, tmp_path):
    child = started(command(reference, data, recipe_file, "--processes", 2, "--set", "train.learning_rate=5"))
    out, err = child.communicate(timeout=LIMIT)
    assert (child.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    child = started(command(tmp_path / "run", data, recipe_file, "--processes", 2, "--set", "train.batch_tokens=32"))
    out, err = child.communicate(timeout=LIMIT)
    assert child.returncode == 2
    assert "1 rows of 32 tokens; each of 2 processes needs one at least" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("codes", "counts"),
    [
        ([0, 0], (0, 0)),
        ([143, 143, -6], (143, 0)),  # saved and stopped; one then fell over at the door
        ([0, -6], (0, 0)),
        ([76, -9], (-9, 1)),
        ([1, -9], (-9, 1)),  # what the loss of another looks like may be new to us
        ([76, 2, 76], (2, 1)),
        ([None, 1], (1, 1)),
        ([-6, -9], (-6, 0)),
        ([76, 76], (76, 0)),
        ([2, 2], (2, 0)),
    ],
)
def test_the_exit_code_that_counts(codes, counts):
    assert processes.verdict(codes) == counts
