"""The state of runs, whatever their files hold."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clozeworks.core import atomic_io
from clozeworks.exchange import checkpoint
from clozeworks.optim.guard import PATIENCE
from clozeworks.train import listing, run_dir
from clozeworks.train.listing import Run, find
from clozeworks.train.pretrain import pretrain
from tests.train.conftest import tiny_recipe


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("listed") / "run"
    pretrain(tiny_recipe(), [(data, 1.0)], run, progress=False)
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def only(place: Path) -> Run:
    (one,) = find([place])
    return one


def test_a_finished_run_tells_its_figures(run: Path):
    one = only(run.parent)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (one.path, one.state, one.recipe, one.process, one.damage) == (str(run), "finished", "bert_tiny", None, [])
    assert (one.step, one.steps, one.checkpoint) == (12, 12, 12)
    assert (one.loss, one.tokens, one.tokens_per_second) == tuple(
        rows[-2][name] for name in ("loss", "tokens", "tokens_per_second")
    )
    assert one.heldout == {name: value for name, value in rows[-1].items() if name != "split"}
    assert one.bytes == sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    assert 0 <= one.age < 3600


def test_a_run_that_was_interrupted_is_stopped_at_its_last_row_or_checkpoint(run: Path):
    shutil.rmtree(run / checkpoint.name_of(12))
    assert (only(run).state, only(run).step) == ("stopped", 12)
    shutil.copytree(run / checkpoint.name_of(10), run / checkpoint.name_of(11))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(
        "".join(line for line in lines if json.loads(line)["step"] <= 8) + '{"step": 9, '
    )
    one = only(run)
    assert (one.state, one.step, one.checkpoint, one.damage) == ("stopped", 11, 11, [])


def test_a_run_that_has_only_begun_is_stopped_at_nought(run: Path):
    (run / "metrics.jsonl").unlink()
    for place in run.glob("step-*"):
        shutil.rmtree(place)
    one = only(run)
    assert (one.state, one.step, one.loss, one.damage) == ("stopped", 0, None, [])


def test_skipped_steps_to_the_end_are_a_run_that_diverged(run: Path):
    shutil.rmtree(run / checkpoint.name_of(12))
    for count, state in ((PATIENCE - 1, "stopped"), (PATIENCE, "diverged")):
        rows = [{"step": 10, "loss": 2.0}] + [{"step": 11 + n, "loss": None, "skipped": True} for n in range(count)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert only(run).state == state
    assert only(run).loss is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", b"{", "run.json cannot be read"),
        ("run.json", b"[]", "run.json is no object"),
        ("run.json", b"{}", "run.json does not say who began it"),
        ("run.json", None, "run.json is missing"),
        ("recipe.json", b"\xff\xfe", "recipe.json cannot be read"),
        ("recipe.json", None, "recipe.json is missing"),
        ("recipe.json", b'{"name": 3, "train": []}', "recipe.json does not say how many steps"),
        ("metrics.jsonl", b'{"step": 1}\nnonsense\n{"step": 2, "loss": NaN}\n', "metrics.jsonl has 1 damaged line"),
    ],
)
def test_damage_is_reported_and_the_rest_still_read(run: Path, name: str, content: bytes | None, message: str):
    (run / name).unlink() if content is None else (run / name).write_bytes(content)
    one = only(run)
    assert one.state == "damaged"
    assert message in " ".join(one.damage)
    assert one.checkpoint == 12
    json.dumps(one.loss, allow_nan=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.sampled_from(["run.json", "recipe.json", "metrics.jsonl", "lock"]),
    st.integers(0, 4000),
    st.binary(max_size=40),
    st.integers(0, 60),
)
def test_no_damage_crashes_it(finished: Path, tmp_path: Path, name: str, at: int, put: bytes, cut: int):
    """Any bytes in place of any others."""
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(finished, run)
    before = (run / name).read_bytes()
    at %= len(before) + 1
    (run / name).write_bytes(before[:at] + put + before[at + cut :])
    (one,) = find([tmp_path])
    assert one.state in ("finished", "stopped", "damaged", "diverged")
    json.dumps([one.loss, one.heldout, one.tokens, one.tokens_per_second, one.steps], allow_nan=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda x: st.lists(x), max_leaves=3
    )
)
def test_rows_with_strange_values_are_read(value: object):
    run = Run("x")
    names = ("loss", "tokens", "tokens_per_second")
    listing._read_rows(
        [{"step": 5, **dict.fromkeys(names, value)}, {"step": 5, "split": "heldout", "loss": value}], run
    )
    assert run.step == 5
    json.dumps([run.loss, run.heldout, run.tokens, run.tokens_per_second], allow_nan=False)


def test_who_holds_the_lock_is_running(run: Path):
    with atomic_io.hold_lock(run, "is training"):
        one = only(run)
        assert one.state == "running"
        assert one.process == f"{os.getpid()} on {os.uname().nodename}"
        (run / "recipe.json").write_text("{")
        assert only(run).state == "running", "damage is reported beside it"
        assert only(run).damage
    assert only(run).state == "damaged"


def test_a_killed_process_is_running_no_longer(run: Path):
    shutil.rmtree(run / checkpoint.name_of(12))
    code = f"""
import time
from pathlib import Path
from clozeworks.core import atomic_io
with atomic_io.hold_lock(Path({str(run)!r}), "is training"):
    print("held", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert only(run).process == f"{child.pid} on {os.uname().nodename}"
        child.kill()
        child.wait()
    assert only(run).state == "stopped"


def test_runs_are_found_once_in_the_order_of_time(run: Path, tmp_path: Path):
    (tmp_path / "other" / "deep").mkdir(parents=True)
    late, early = tmp_path / "other" / "deep" / "late", tmp_path / ".hidden" / "run"
    shutil.copytree(run, late)
    shutil.copytree(run, early)
    shutil.copytree(early, run / "copy")  # part of the run, as its checkpoints are
    (tmp_path / "other" / "run.json").write_text("{}")  # of somebody else
    (tmp_path / "link").symlink_to(run)
    for place, ago in ((run, 1000), (late, 10)):
        for name in ("metrics.jsonl", "run.json"):
            os.utime(place / name, (time.time() - ago,) * 2)
    assert [one.path for one in find([tmp_path, run, tmp_path / "other"])] == [str(late), str(run)]
    assert [one.path for one in find([early])] == [str(early)], "named, it is looked into"


def test_the_names_are_those_of_the_folder():
    assert (run_dir.RUN, run_dir.RECIPE, run_dir.METRICS) == (listing.RUN, listing.RECIPE, listing.METRICS)
    assert listing.LOST == PATIENCE
