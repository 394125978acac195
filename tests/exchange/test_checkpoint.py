"""Checkpoints against truncation, flipped bits, missing files and disks that are full."""

import contextlib
import errno
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.exchange import checkpoint
from clozeworks.exchange.tensors import assign
from clozeworks.optim.keep import Keep

FILES = (checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE, checkpoint.MANIFEST)


def tensors(value: float, rows: int = 8) -> dict[str, dict[str, torch.Tensor]]:
    return {
        checkpoint.MODEL: {"a.weight": torch.full((rows, 4), value), "a.bias": torch.arange(4.0)},
        checkpoint.OPTIMIZER: {"a.weight.exp_avg": torch.full((rows, 4), -value), "a.weight.step": torch.tensor(value)},
    }


def save(run: Path, step: int, rows: int = 8, keep: int = 2) -> Path:
    path = checkpoint.save(run, step, tensors(float(step), rows), {"tokens": 10 * step})
    checkpoint.prune(run, step, lambda steps: Keep(keep).choose(steps, {}))
    return path


def names(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


def value_of(saved: checkpoint.Checkpoint | None) -> float:
    assert saved is not None
    return float(saved.tensors()["a.weight"][0, 0])


def test_what_was_saved_comes_back(tmp_path: Path):
    path = save(tmp_path, 7)
    assert names(path) == sorted(FILES)
    newest = checkpoint.newest(tmp_path)
    assert newest is not None
    assert (newest.path, newest.step, newest.state) == (path, 7, {"step": 7, "tokens": 70})
    for file, content in tensors(7.0).items():
        back = newest.tensors(file)
        assert back.keys() == content.keys()
        assert all(torch.equal(back[name], content[name]) for name in content)


def test_the_last_two_are_kept(tmp_path: Path):
    for step in (5, 10, 15, 100):
        save(tmp_path, step)
    assert names(tmp_path) == ["step-00000015", "step-00000100"]


def test_a_course_that_is_left_leaves_nothing(tmp_path: Path):
    for step in (10, 20, 30):
        save(tmp_path, step, keep=9)
    assert value_of(checkpoint.find(tmp_path, upto=29).checkpoint) == 20
    checkpoint.drop_after(tmp_path, 20)
    assert names(tmp_path) == ["step-00000010", "step-00000020"]


def test_no_run_no_checkpoint(tmp_path: Path):
    assert checkpoint.find(tmp_path / "none") == checkpoint.CheckpointSearch(None)
    assert checkpoint.find(tmp_path) == checkpoint.CheckpointSearch(None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    save(run, 10)
    save(run, 20)
    return run


@contextlib.contextmanager
def changed(file: Path, content: bytes | None):
    before = file.read_bytes()
    try:
        file.unlink() if content is None else file.write_bytes(content)
        yield
    finally:
        file.write_bytes(before)


def assert_passed_over(run: Path, file: str) -> None:
    result = checkpoint.find(run)
    assert value_of(result.checkpoint) == 10
    assert len(result.damaged) == 1
    assert "step-00000020" in result.damaged[0]
    if file != checkpoint.MANIFEST:
        assert file in result.damaged[0]


@given(file=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_found(two: Path, file: str, where: float, bit: int):
    path = two / "step-00000020" / file
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1 << bit
    with changed(path, bytes(content)):
        assert_passed_over(two, file)
    assert value_of(checkpoint.newest(two)) == 20


@given(file=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_truncation_is_found(two: Path, file: str, where: float):
    path = two / "step-00000020" / file
    content = path.read_bytes().rstrip(b"\n")  # JSON without its last newline is still the same JSON
    with changed(path, content[: int(where * len(content))]):
        assert_passed_over(two, file)


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_found(two: Path, file: str):
    with changed(two / "step-00000020" / file, None):
        assert_passed_over(two, file)


def test_a_manifest_that_lists_too_little_is_found(two: Path):
    path = two / "step-00000020" / checkpoint.MANIFEST
    for files in ({}, {checkpoint.STATE: json.loads(path.read_text())["files"][checkpoint.STATE]}):
        with changed(path, json.dumps({"files": files}).encode()):
            assert_passed_over(two, checkpoint.MANIFEST)


def test_a_damaged_one_is_replaced_when_its_step_comes_again(tmp_path: Path):
    save(tmp_path, 10)
    (save(tmp_path, 20) / checkpoint.MODEL).write_bytes(b"")
    assert value_of(checkpoint.newest(tmp_path)) == 10
    save(tmp_path, 15)
    assert value_of(checkpoint.newest(tmp_path)) == 15
    save(tmp_path, 20)
    assert checkpoint.find(tmp_path).damaged == ()
    assert names(tmp_path) == ["step-00000015", "step-00000020"]


def test_damaged_ones_do_not_count_among_those_kept(tmp_path: Path):
    for step in (10, 20, 30):
        save(tmp_path, step, keep=9)
    for name in ("step-00000020", "step-00000030"):
        (tmp_path / name / checkpoint.STATE).unlink()
    save(tmp_path, 15)
    assert names(tmp_path) == ["step-00000010", "step-00000015", "step-00000020", "step-00000030"]
    assert value_of(checkpoint.newest(tmp_path)) == 15


def test_what_a_dead_process_left_is_ignored_and_swept(tmp_path: Path):
    save(tmp_path, 10)
    code = (
        "import os, pathlib, sys\n"
        "from clozeworks.core import atomic_io as atomic\n"
        "with atomic.directory(pathlib.Path(sys.argv[1]) / 'step-00000020') as new:\n"
        "    (new / 'model.safetensors').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(names(tmp_path)) == 2
    assert checkpoint.find(tmp_path).damaged == ()
    assert value_of(checkpoint.newest(tmp_path)) == 10
    save(tmp_path, 30)
    assert names(tmp_path) == ["step-00000010", "step-00000030"]


@contextlib.contextmanager
def file_size_limit(size: int):
    """Every write beyond `size` bytes fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit", [0, 100, 5_000, 9_000])
def test_a_write_that_fails_leaves_the_previous_one(tmp_path: Path, limit: int):
    save(tmp_path, 10, rows=500)
    with file_size_limit(limit), pytest.raises(InputError, match=r"step-00000020: the file is too large"):
        save(tmp_path, 20, rows=600)
    assert names(tmp_path) == ["step-00000010"]
    assert value_of(checkpoint.newest(tmp_path)) == 10


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "none", disk], check=False).returncode:
        pytest.skip("no right to mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_noticed_before_anything_is_written(small_disk: Path):
    run = small_disk / "run"
    save(run, 10)
    with pytest.raises(InputError, match=r"step-00000020: \d+ MB are free; a checkpoint takes 5 MB; free some space"):
        save(run, 20, rows=125_000)
    assert names(run) == ["step-00000010"]


def test_a_disk_that_fills_up_meanwhile_leaves_the_previous_one(small_disk: Path, monkeypatch: pytest.MonkeyPatch):
    run = small_disk / "run"
    save(run, 10)
    # Somebody else may take the room between the look and the write; without the look the disk itself says no.
    monkeypatch.setattr(checkpoint, "_need_room", lambda path, size: None)
    with pytest.raises(InputError, match="step-00000020: the disk is full; room is needed"):
        save(run, 20, rows=125_000)
    assert names(run) == ["step-00000010"]
    assert value_of(checkpoint.newest(run)) == 10


def test_weights_of_another_shape_are_refused(tmp_path: Path):
    save(tmp_path, 10)
    newest = checkpoint.newest(tmp_path)
    assert newest is not None
    model = torch.nn.Module()
    model.a = torch.nn.Linear(4, 9)
    with pytest.raises(InputError, match=r"step-00000010: a\.weight of shape \(8, 4\); \(9, 4\) is needed"):
        assign(model, newest.tensors(), newest.path)


def test_a_run_that_could_never_save_is_refused_before_its_first_step(tmp_path):
    with torch.device("meta"):
        model = torch.nn.Linear(1 << 21, 1 << 21)  # 16 TB, none of it allocated
    with pytest.raises(InputError, match=r"MB are free; a checkpoint takes .* MB; free some space"):
        checkpoint.expect_room(tmp_path, model)


def test_an_old_one_that_cannot_be_deleted_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for step in (1, 2):
        save(tmp_path, step)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", fail)
        checkpoint.prune(tmp_path, 2, lambda _: set())
    assert checkpoint.verify(tmp_path / checkpoint.name_of(1))
    checkpoint.prune(tmp_path, 2, lambda _: set())
    assert not (tmp_path / checkpoint.name_of(1)).exists()
