"""Several processes of one machine: who they are, how they end, and what is passed on to them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from clozeworks.train.startup import processes


def test_threads_are_divided_and_every_process_knows_who_it_is(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    environments = [processes.environment(rank, 2, 1234) for rank in range(2)]
    assert [each["RANK"] for each in environments] == [each["LOCAL_RANK"] for each in environments] == ["0", "1"]
    assert {(each["WORLD_SIZE"], each["OMP_NUM_THREADS"], each["MASTER_PORT"]) for each in environments} == {
        ("2", "2", "1234")
    }


def test_the_exit_code_is_that_of_the_process_that_failed(capfd):
    assert processes.run(["show", "bert_bse"], 2) == 2
    err = capfd.readouterr().err
    assert err.count("did you mean bert_base") == 1, "reported once"
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
