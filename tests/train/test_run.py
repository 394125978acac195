"""A run from beginning to end, interrupted, refused and continued."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clozeworks.core import atomic_io, spec
from clozeworks.core.errors import InputError
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.text.documents import Document
from clozeworks.exchange import checkpoint
from clozeworks.exchange.tensors import assign
from clozeworks.inference.text_encoder import load
from clozeworks.optim.keep import Keep
from clozeworks.optim.settings import Phase
from clozeworks.recipe import Recipe, build
from clozeworks.train import metrics_log
from clozeworks.train.pretrain import pretrain
from tests.train.conftest import tiny_recipe

Tiny = Callable[..., Recipe]


def rows(run: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock."""
    return [
        {k: v for k, v in row.items() if k not in metrics_log.TIMINGS}
        for row in metrics_log.read(run / "metrics.jsonl")
    ]


def weights(path: Path) -> tuple[bytes, bytes]:
    return (path / checkpoint.MODEL).read_bytes(), (path / checkpoint.OPTIMIZER).read_bytes()


def content(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tiny: Tiny, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run with all its checkpoints, through two phases."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    torch.set_num_threads(1)
    result = pretrain(phased(tiny, keep=Keep(99)), [(data, 1.0)], run, progress=False)
    assert result.finished
    assert result.heldout is not None
    return run


def phased(tiny: Tiny, **train: object) -> Recipe:
    return tiny(14, phases=(Phase(0.5, 32), Phase(0.5, 64)), **train)


def test_a_run_writes_what_it_promises(whole: Path, data: Path, tiny: Tiny):
    names = {path.name for path in whole.iterdir()}
    assert names == {"recipe.json", "run.json", "metrics.jsonl", "tokenizer.json", "tokenizer_config.json", "lock",
                     "step-00000005", "step-00000010", "step-00000014"}  # fmt: skip
    recipe = spec.from_dict(json.loads((whole / "recipe.json").read_text()))
    expected = phased(tiny, keep=Keep(99))
    expected.encoder.vocab = json.loads((data / "manifest.json").read_text())["tokenizer"]["size"]
    assert recipe == expected
    record = json.loads((whole / "run.json").read_text())
    assert record["data"][0]["fingerprint"]
    (session,) = record["sessions"]
    assert session["versions"]["torch"] == torch.__version__
    assert session["machine"]["cores"] >= 1
    assert session["command"]
    assert (whole / "tokenizer.json").read_text() == (data / "tokenizer.json").read_text()


def test_metrics_say_what_the_design_lists(whole: Path):
    result = metrics_log.read(whole / "metrics.jsonl")
    trained = [row for row in result if "split" not in row]
    assert [row["step"] for row in trained] == [1, 2, 4, 6, 8, 10, 12, 14]
    assert [row["step"] for row in result if row.get("split") == "heldout"] == [6, 12, 14]
    fields = {"step", "loss", "learning_rate", "tokens", "tokens_per_second", "tokens_per_cpu_second",
              "data_wait_share", "peak_memory_mb", "masked_lm", "sentence_pair", "masked_accuracy",
              "pair_accuracy"}  # fmt: skip
    assert all(fields <= row.keys() for row in trained)
    assert trained[-1]["loss"] < trained[0]["loss"]
    tokens = [row["tokens"] for row in trained]
    assert tokens == sorted(tokens)
    assert trained[-1]["tokens"] == checkpoint.verify(whole / "step-00000014").state["tokens"]


@pytest.mark.parametrize("step", [5, 10])
def test_resumed_is_uninterrupted(whole: Path, data: Path, tiny: Tiny, tmp_path: Path, step: int):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for later in (10, 14):
        if later > step:
            shutil.rmtree(run / checkpoint.name_of(later))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 14, "torn')
    result = pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    assert (result.resumed, result.step) == (step, 14)
    assert weights(result.checkpoint) == weights(whole / "step-00000014")
    assert rows(run) == rows(whole)
    assert len(json.loads((run / "run.json").read_text())["sessions"]) == 2


def test_a_damaged_checkpoint_is_passed_over_and_said(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for name in ("step-00000014", "step-00000010"):
        file = run / name / checkpoint.MODEL
        content = bytearray(file.read_bytes())
        content[-5] ^= 16
        file.write_bytes(content)
    result = pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    assert result.resumed == 5
    assert "step-00000010: the content of model.safetensors has changed" in " ".join(result.notes)
    assert weights(result.checkpoint) == weights(whole / "step-00000014")
    assert rows(run) == rows(whole)


def test_nothing_sound_left_is_refused_not_begun_again(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for path in run.glob("step-*"):
        (path / checkpoint.MANIFEST).unlink()
    before = content(run)
    with pytest.raises(InputError, match=r"manifest.json is missing.*a sound checkpoint is needed"):
        pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    assert content(run) == before


def test_a_full_disk_ends_the_run_with_a_sentence_and_costs_no_checkpoint(
    whole: Path, data: Path, tiny: Tiny, tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "step-00000010")
    shutil.rmtree(run / "step-00000014")
    size = (run / "step-00000005" / checkpoint.OPTIMIZER).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, before[1]))  # the metrics still fit, a checkpoint does not
    try:
        with pytest.raises(InputError, match="step-00000010: the file is too large"):
            pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in run.glob("*step-*")] == ["step-00000005"]
    assert rows(run)[-1]["step"] >= 10, "rows are written before the checkpoint that promises them"
    result = pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    assert result.resumed == 5
    assert weights(result.checkpoint) == weights(whole / "step-00000014")
    assert rows(run) == rows(whole)


def test_a_finished_run_says_so_again(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    result = pretrain(phased(tiny), [(data, 1.0)], run, progress=False)
    assert result.finished
    assert (
        "was finished already, all 14 steps of it; to train it further, begin another run: --from" in result.notes[-1]
    )
    assert not any("resuming" in note for note in result.notes)
    last = [row for row in rows(whole) if row.get("split") == "heldout"][-1]
    assert {"step": 14, "split": "heldout", **(result.heldout or {})} == last
    assert rows(run) == rows(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: setattr(r.train, "steps", 28), "train.steps 14 -> 28.*the rate of every step"),
        (lambda r: setattr(r.encoder.stack, "depth", 3), "encoder.stack.depth 2 -> 3"),
        (lambda r: setattr(r.train, "seed", 1), "train.seed 0 -> 1"),
    ],
)
def test_another_recipe_is_refused_with_the_difference(whole: Path, data: Path, tiny: Tiny, change, message: str):
    before = content(whole)
    recipe = phased(tiny)
    change(recipe)
    with pytest.raises(InputError, match=message):
        pretrain(recipe, [(data, 1.0)], whole, progress=False)
    assert content(whole) == before


def test_what_is_kept_of_a_run_may_change(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "step-00000014")
    result = pretrain(phased(tiny, log_every=1, save_every=3, evaluate_every=2), [(data, 1.0)], run, progress=False)
    assert result.resumed == 10
    assert weights(result.checkpoint) == weights(whole / "step-00000014")
    assert json.loads((run / "recipe.json").read_text())["train"]["save_every"] == 3


def test_other_data_is_refused(whole: Path, data: Path, more_data: Path, foreign_data: Path, tiny: Tiny):
    with pytest.raises(InputError, match="is other data, or has other weights"):
        pretrain(phased(tiny), [(more_data, 1.0)], whole, progress=False)
    with pytest.raises(InputError, match="is other data, or has other weights"):
        pretrain(phased(tiny), [(data, 1.0), (more_data, 1.0)], whole, progress=False)
    with pytest.raises(InputError, match="has another tokenizer than this run"):
        pretrain(phased(tiny), [(foreign_data, 1.0)], whole, progress=False)


def test_a_changed_shard_is_noticed(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    moved = tmp_path / "data"
    shutil.copytree(data, moved)
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    assert pretrain(phased(tiny), [(moved, 1.0)], run, progress=False).finished, "a directory may move"
    for split in ("heldout", "train"):
        shard = next(moved.glob(f"{split}-*"))
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(content)
        with pytest.raises(InputError, match=f"{split}-.*other content than the manifest's hash"):
            pretrain(phased(tiny), [(moved, 1.0)], run, progress=False)


def test_two_processes_cannot_train_into_one_run(data: Path, tiny: Tiny, tmp_path: Path):
    with (
        atomic_io.hold_lock(tmp_path, "is training into it"),
        pytest.raises(InputError, match=r"process \d+ on .* is training into it"),
    ):
        pretrain(tiny(), [(data, 1.0)], tmp_path, progress=False)
    (tmp_path / "lock").write_text("1 on a machine that died\n")
    assert pretrain(tiny(2), [(data, 1.0)], tmp_path, progress=False).finished


def test_without_heldout_text_there_is_no_evaluation(tiny: Tiny, tmp_path: Path):
    texts = [Document(sentences=["a red fox runs .", "a blue dog sleeps ."] * 9) for _ in range(9)]
    prepare(texts, tmp_path / "data", vocab=400, heldout=0.0)
    result = pretrain(tiny(2), [(tmp_path / "data", 1.0)], tmp_path / "run", progress=False)
    assert result.finished
    assert result.heldout is None
    assert "no document was held out" in result.notes[0]


def test_too_little_heldout_text_for_the_objective_is_said(tiny: Tiny, tmp_path: Path):
    texts = [Document(sentences=[f"a red fox runs near stone {n} .", "a blue dog sleeps ."] * 9) for n in range(40)]
    prepare(texts, tmp_path / "data", vocab=400, heldout=0.025)
    assert json.loads((tmp_path / "data" / "manifest.json").read_text())["splits"]["heldout"]["documents"] == 1
    result = pretrain(tiny(2), [(tmp_path / "data", 1.0)], tmp_path / "run", progress=False)
    assert result.heldout is None
    assert "held out is one document; sentence pairs need a second" in result.notes[0]


def test_continuing_from_a_model(whole: Path, data: Path, tiny: Tiny, tmp_path: Path):
    recipe = spec.from_dict(json.loads((whole / "recipe.json").read_text()))
    source = build(recipe)
    assign(source, checkpoint.verify(whole / "step-00000014").tensors(), whole)
    fresh = pretrain(tiny(2), [(data, 1.0)], tmp_path / "fresh", progress=False)
    result = pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", source=source, progress=False)
    assert rows(result.run)[0]["loss"] < rows(fresh.run)[0]["loss"] - 0.1
    with pytest.raises(InputError, match="begun from other weights"):
        pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", source=build(recipe), progress=False)
    shutil.rmtree(tmp_path / "run" / "step-00000002")
    with pytest.raises(
        InputError, match="no checkpoint yet; it was begun from a model or vectors; give the same --from"
    ):
        pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", progress=False)
    deeper = tiny(2)
    deeper.encoder.stack.depth = 3
    with pytest.raises(InputError, match=r"--from, encoder.stack.blocks.2.*nothing.*take the recipe of that model"):
        pretrain(deeper, [(data, 1.0)], tmp_path / "deeper", source=source, progress=False)


RUN = "import runpy; runpy.run_module('clozeworks', run_name='__main__', alter_sys=True)"
ENDLESS = f"""
import sys, time
from pathlib import Path
from clozeworks.train import loop

def compute_endlessly(*_):
    Path(sys.argv[-1]).with_suffix(".entered").touch()
    while True:
        time.sleep(0.01)

loop.accumulate = compute_endlessly
{RUN}
"""


def heed_interrupts() -> None:
    """In a child before it begins: tests that run in the background ignore Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(recipe: Recipe, data: Path, out: Path, steps: int, code: str = RUN) -> subprocess.Popen[str]:
    """A run of the command line that has done so many steps; 0: that is in the middle of its first one."""
    file = out.with_suffix(".json")
    file.write_text(json.dumps(spec.to_dict(recipe)))
    words = ["-c", code, "pretrain", str(file), "--data", str(data), "--out", str(out)]
    child = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    deadline = time.monotonic() + 300  # a loaded machine takes a minute to begin
    metrics, entered = out / "metrics.jsonl", out.with_suffix(".entered")
    while time.monotonic() < deadline and child.poll() is None:
        if (metrics.exists() and len(metrics_log.read(metrics)) >= steps > 0) or (steps == 0 and entered.exists()):
            break
        time.sleep(0.02)
    return child


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_finishes_the_step_saves_and_says_how_to_continue(
    data: Path, tiny: Tiny, tmp_path: Path, number: signal.Signals, code: int
):
    run = tmp_path / "run"
    child = command(tiny(40_000, save_every=40_000, evaluate_every=40_000, log_every=1), data, run, steps=3)
    child.send_signal(number)
    out, error = child.communicate(timeout=60)
    assert child.returncode == code, error
    newest = checkpoint.newest(run)
    assert newest is not None
    assert 3 <= newest.step < 40_000
    assert rows(run)[-1]["step"] == newest.step
    assert f"stopped at step {newest.step:,} of 40,000; run the same command again to resume" in out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(data: Path, tiny: Tiny, tmp_path: Path, number: signal.Signals):
    """In a step that never ends, so that nothing but the second signal can end the process."""
    run = tmp_path / "run"
    child = command(tiny(save_every=1, log_every=1), data, run, steps=0, code=ENDLESS)
    child.send_signal(number)
    time.sleep(2)  # two that come between two instructions are one
    child.send_signal(number)
    _, error = child.communicate(timeout=120)
    # By the signal itself, or by Python's answer to Ctrl-C; a shell says 143 or 130.
    assert child.returncode in ({-number} if number == signal.SIGTERM else {-number, 130}), error
    assert checkpoint.newest(run) is None
    assert not rows(run)


def test_a_checkpoint_alone_is_a_model(whole: Path, data: Path, tmp_path: Path):
    alone = tmp_path / "alone"
    shutil.copytree(whole / "step-00000010", alone)
    encoder = load(alone)
    assert encoder.tokenizer is not None
    assert encoder.recipe == load(whole).recipe
    trained = checkpoint.verify(whole / "step-00000010").tensors()
    assert all(torch.equal(trained[name], value.detach()) for name, value in encoder.model.named_parameters())
    file = alone / checkpoint.MODEL
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)
    with pytest.raises(
        InputError, match=r"the content of model\.safetensors has changed; a sound checkpoint is needed"
    ):
        load(alone)


def test_a_recipe_that_cannot_be_read_is_named(data, tmp_path):
    pretrain(tiny_recipe(4), [(data, 1.0)], tmp_path / "run", progress=False)
    (tmp_path / "run" / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe\.json: unreadable .*restore it"):
        pretrain(tiny_recipe(4), [(data, 1.0)], tmp_path / "run", progress=False)
