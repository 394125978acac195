"""Modules that lie in the working directory are not imported by the processes that the library starts."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clozeworks.core.child_process import child_environment, python_command
from clozeworks.data.shards.engines import use_processes
from clozeworks.exchange import tensors
from clozeworks.machine import trials
from tests.command_line import SMALL

TRAP = "open('owned', 'a').write(__name__)\nraise SystemExit('owned')\n"


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory as somebody may have sent it."""
    for name in ("torch", "json", "safetensors", "multiprocessing", "pickle", "numpy"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "clozeworks").mkdir()
    (tmp_path / "clozeworks" / "__init__.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_trap_works(trapped: Path):
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True)
    assert done.returncode
    assert (trapped / "owned").exists()


def test_a_child_and_its_child_import_what_is_installed(trapped: Path):
    inner = "[sys.executable, '-c', 'import json, torch']"
    grandchild = f"import subprocess, sys; sys.exit(subprocess.run({inner}).returncode)"
    for code in ("import json, clozeworks", grandchild):
        subprocess.run(python_command("-c", code), env=child_environment(), check=True)
    subprocess.run(python_command("-m", "clozeworks", "--version"), env=child_environment(), check=True)
    assert not (trapped / "owned").exists()


def test_pickles_are_opened_elsewhere(trapped: Path):
    torch.save({"a": torch.ones(2)}, "pytorch_model.bin")
    assert tensors.read_directory(Path(), allow_pickle=True)["a"].tolist() == [1, 1]
    assert not (trapped / "owned").exists()


def test_the_doctor_is_not_fooled(trapped: Path):
    assert trials.run_child("import json, torch; print(json.dumps({'fine': 1}))") == {"fine": 1}
    assert not (trapped / "owned").exists()


class Measure:
    """A task for workers: how long a text is."""

    def start(self):
        return len


def test_workers_of_prepare_are_not_fooled(trapped: Path):
    assert list(use_processes(2)(Measure(), iter(["a", "bb"]))) == [1, 2]  # pyright: ignore[reportArgumentType]
    assert not (trapped / "owned").exists()


@pytest.mark.slow
def test_processes_that_train_together_are_not_fooled(road: Path, trapped: Path):
    """The launcher is the installed command; what it starts is started where the trap lies."""
    words = ["pretrain", "bert_tiny", "--data", str(road / "data"), "--out", "run", "--processes", "2", *SMALL]
    launcher = f"import clozeworks.cli.main as c; raise SystemExit(c.main({words!r}))"
    done = subprocess.run([sys.executable, "-P", "-c", launcher], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (trapped / "owned").exists()


def test_an_empty_entry_of_the_path_is_not_passed_on(trapped: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", ":/nowhere:")  # as `export PYTHONPATH=$PYTHONPATH:/nowhere` leaves it
    subprocess.run(python_command("-c", "import json, torch"), env=child_environment(), check=True)
    assert not (trapped / "owned").exists()
