"""Several processes from the command line: what is printed for other machines, what is refused, what is passed on."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clozeworks.cli.main import main
from clozeworks.train.startup import processes
from tests.command_line import SMALL, refused

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_script_for_slurm_is_printed(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", "my run", *SMALL]
    assert main([*words, "--launch", "slurm", "--nodes", "4", "--processes=8", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("#!/bin/bash\n")
    assert "#SBATCH --nodes=4\n" in told
    assert "#SBATCH --gpus-per-node=8\n" in told
    last = shlex.split(told.splitlines()[-1])
    assert last[:6] == ["srun", "torchrun", "--nnodes", "4", "--nproc-per-node", "8"]
    assert last[last.index("-m") :] == ["-m", "clozeworks", *words]


def test_a_line_of_torchrun_is_printed(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", "run"]
    assert main([*words, "--dry-run", "--set", "train.processes=3", "--launch", "torchrun", "--nodes", "2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("torchrun --nnodes 2 --nproc-per-node 3 --max-restarts 3 --rdzv-backend c10d")
    assert told.endswith(f"$HEAD:29400 -m clozeworks {shlex.join(words)} --set train.processes=3\n")


def test_launch_only_prints(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", f"{road}/far"]
    assert "it prints a command and starts nothing; add --dry-run" in refused(capsys, *words, "--launch", "slurm")
    assert "--nodes: 2 machines" in refused(capsys, *words, "--nodes", "2")
    assert "no --out" in refused(capsys, *words[:4], "--processes", "2")
    assert not (road / "far").exists()


def test_threads_are_divided_and_every_process_knows_who_it_is(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    found = [processes.environment(rank, 2, 1234) for rank in range(2)]
    assert [each["RANK"] for each in found] == [each["LOCAL_RANK"] for each in found] == ["0", "1"]
    assert {(each["WORLD_SIZE"], each["OMP_NUM_THREADS"], each["MASTER_PORT"]) for each in found} == {
        ("2", "2", "1234")
    }


def test_the_exit_code_is_that_of_the_process_that_failed(capfd):
    assert processes.run(["show", "bert_bse"], 2) == 2
    err = capfd.readouterr().err
    assert err.count("did you mean bert_base") == 1, "told once"
    assert processes.run(["--version"], 2) == 0
    assert capfd.readouterr().out.count("clozeworks") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells a child")
def test_processes_are_asked_to_stop_when_their_launcher_is_killed():
    code = (
        "import subprocess\n"
        "from clozeworks.train.startup import processes\n"
        "child = subprocess.Popen(['sleep', '60'], preexec_fn=processes.end_with_launcher, start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.kill()
    state = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + 10
    while state.exists() and " Z " not in state.read_text():
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.01)
