"""clozeworks runs, and pretrain --log."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clozeworks.cli.main import main
from tests.command_line import SMALL, facts, refused


@pytest.fixture
def here(road: Path, tmp_path: Path) -> Path:
    shutil.copytree(road / "run", tmp_path / "runs" / "first")
    return tmp_path


def test_runs_are_listed_in_one_line_each(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(
        here / "runs" / "first", here / "runs" / "a [bold]name with a length that no narrow column would take"
    )
    monkeypatch.chdir(here)
    capsys.readouterr()
    assert main(["runs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "run recipe state step loss held-out tokens tokens/s last row disk"
    assert len(lines) == 2
    assert sorted(line.split("  ")[0] for line in lines) == [
        "runs/a [bold]name with a length that no narrow column would take",
        "runs/first",
    ]
    assert all("bert_tiny  finished  4 of 4" in line for line in lines)


def test_runs_as_json(here: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "runs", here, here / "runs")
    (run,) = report["runs"]
    assert (run["path"], run["state"], run["step"], run["steps"]) == (str(here / "runs" / "first"), "finished", 4, 4)
    assert {"recipe", "process", "loss", "heldout", "tokens", "tokens_per_second", "age", "bytes", "damage"} <= {*run}
    assert facts(capsys, "runs", here / "runs" / "first" / "step-00000004") == {"runs": []}


def test_no_runs_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in or below {tmp_path}; clozeworks pretrain begins one\n"


def test_places_that_are_none_are_refused(here: Path, capsys: pytest.CaptureFixture[str]):
    assert "did you mean" in refused(capsys, "runs", here / "run")
    assert "a directory is needed" in refused(capsys, "runs", here / "runs" / "first" / "run.json")


def test_damage_is_a_note(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "runs" / "first" / "run.json").write_text("{")
    with (here / "runs" / "first" / "metrics.jsonl").open("a") as file:
        file.write("nonsense\n")
    capsys.readouterr()
    assert main(["runs", str(here)]) == 0
    out = capsys.readouterr().out
    assert "bert_tiny  damaged  4 of 4" in out
    assert f"note  {here}/runs/first: run.json cannot be read" in out
    assert "metrics.jsonl has 1 damaged line\n" in out


def test_a_narrow_terminal_gets_one_run_below_the_other(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    capsys.readouterr()
    assert main(["runs", str(here)]) == 0
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines if line[0] != " "][:3] == ["run", "recipe", "state"]
    shown = "".join(line[10:].strip() for line in lines)
    assert shown.startswith(f"{here}/runs/firstbert_tinyfinished4 of 4"), "a path is shown whole"


def test_it_does_without_torch(here: Path):
    code = "import sys; from clozeworks.cli.main import main; "
    code += f"main(['runs', {str(here)!r}]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_log_writes_elsewhere_too(road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None):
    pytest.importorskip("tensorboard")
    done = facts(
        capsys,
        "pretrain",
        "bert_tiny",
        "--data",
        road / "data",
        "--out",
        tmp_path / "run",
        *SMALL,
        "--log",
        "tensorboard",
    )
    assert done["finished"]
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    assert json.loads((tmp_path / "run" / "recipe.json").read_text()) == json.loads(
        (road / "run" / "recipe.json").read_text()
    )


def test_a_writer_that_is_not_there_is_refused_before_the_run_is(
    road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refused(
        capsys, "pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *SMALL, "--log", "wandb"
    )
    assert "--log wandb: it is not installed; the package wandb is needed; pip install 'wandb'" in message
    assert not (tmp_path / "run").exists()
    assert "did you mean tensorboard" in refused(capsys, "pretrain", "bert_tiny", "--data", "x", "--log", "tensorbard")
