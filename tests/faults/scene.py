"""What every fault needs: prepared text, a recipe that trains in a second, commands, and what a run ended with."""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which every optimizer loads; here once, not in each child

from clozeworks.cli.main import main
from clozeworks.exchange import checkpoint
from clozeworks.train import metrics_log
from tests.command_line import text

SMALL = {
    "encoder.width": 32,
    "encoder.stack.block.mixer.heads": 2,
    "encoder.stack.block.ffn.inner": 64,
    "objective.segments.length": 32,
    "train.batch_tokens": 256,
    "train.micro_tokens": 128,
    "train.log_every": 1,
    "train.evaluate_every": 20,
    "train.precision": "fp32",
}
SECONDS = 120  # a command of ours that takes longer hangs


@dataclass(slots=True)
class Child:
    """A command in a process of its own."""

    pid: int
    log: Path  # its standard output and error
    status: int | None = None  # as a shell would say it, but a signal is negative

    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def wait(self, seconds: float = SECONDS) -> int:
        until(self.ended, seconds, f"process {self.pid} hangs")
        assert self.status is not None
        return self.status

    def signal(self, number: int = signal.SIGKILL) -> None:
        if not self.ended():
            os.kill(self.pid, number)

    def says(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass(slots=True)
class Figures:
    """What one kind of fault came to: how many cases, figures by name, and a sentence for each promise broken."""

    cases: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    skipped: str = ""  # why nothing was tried

    def add(self, name: str, count: int = 1) -> None:
        self.figures[name] = self.figures.get(name, 0) + count

    def expect(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.broken.append(sentence)


class Scene:
    """A folder with text, prepared in it."""

    def __init__(self, folder: Path):
        self.folder, self.data = folder, folder / "data"
        self.corpus = folder / "corpus.txt"
        self.corpus.write_text(text(150, 1))
        done = fork(lambda: main(self.prepare(self.data)), folder / "prepare.log")
        assert done.wait() == 0, done.says()

    def prepare(self, out: Path) -> list[str]:
        return ["prepare", str(self.corpus), "--out", str(out), "--vocab", "120", "--heldout", "0.1", "--json"]

    def pretrain(self, out: Path, *more: str, recipe: str = "bert_tiny", **train: object) -> list[str]:
        """The words of a command; keywords are fields of `train`."""
        settings = SMALL | {f"train.{name}": value for name, value in train.items()}
        sets = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
        return ["pretrain", recipe, "--data", str(self.data), "--out", str(out), "--json", *sets, *more]

    def start(self, act: Sequence[str] | Callable[[], int]) -> Child:
        """A command, or a function, in a fork of this process, which has everything imported: it begins at once."""
        handle, name = tempfile.mkstemp(".log", dir=self.folder)
        os.close(handle)
        return fork(act if callable(act) else lambda: main(act), Path(name))

    def run(self, act: Sequence[str] | Callable[[], int]) -> Child:
        child = self.start(act)
        child.wait()
        return child


@contextmanager
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        yield Scene(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fork(act: Callable[[], int], log: Path) -> Child:
    """Call in a forked process; what it returns is the exit code, what it raises a traceback and 1."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, log)
    status = 1
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        torch.set_num_threads(1)
        status = act()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def each(function: Callable[[Any], Any], items: Sequence[Any], folder: Path, at_once: int = 2) -> list[Any]:
    """`function` of each item in forked processes, a few at a time; results are JSON."""

    def act(number: int) -> int:
        result = function(items[number])
        (folder / f"result-{number}.json").write_text(json.dumps(result))
        return 0

    waiting, running, done = list(range(len(items)))[::-1], dict[int, Child](), dict[int, Any]()
    while waiting or running:
        while waiting and len(running) < at_once:
            number = waiting.pop()
            running[number] = fork(lambda number=number: act(number), folder / f"result-{number}.log")
        for number in [number for number, child in running.items() if child.ended()]:
            child = running.pop(number)
            if child.status != 0:
                raise RuntimeError(f"case {items[number]}: {child.says()}")
            done[number] = json.loads((folder / f"result-{number}.json").read_text())
        time.sleep(0.01)
    return [done[number] for number in range(len(items))]


def until(holds: Callable[[], bool], seconds: float = SECONDS, otherwise: str = "it never happened") -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.0005)


def names(run: Path) -> list[str]:
    return os.listdir(run) if run.exists() else []


def saved(run: Path) -> str:
    """The name of the newest checkpoint."""
    return max((name for name in names(run) if name.startswith("step-")), default="")


def left(run: Path) -> list[str]:
    """What unfinished writes left behind."""
    return sorted(name for name in names(run) if name.startswith("."))


def end_of(run: Path) -> dict[str, Any]:
    """All a run ended with apart from timings: hashes of its newest checkpoint's files, state and metrics."""
    newest = checkpoint.newest(run)
    if newest is None:
        return {"checkpoint": None}
    exact = [path for path in sorted(newest.path.iterdir()) if path.suffix == ".safetensors"]
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in exact}
    state = {name: value for name, value in newest.state.items() if name != "seconds"}
    rows = [
        {k: v for k, v in row.items() if k not in metrics_log.TIMINGS}
        for row in metrics_log.read(run / "metrics.jsonl")
    ]
    return {"checkpoint": newest.path.name, "files": files, "state": state, "metrics": rows}


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two ends differ in."""
    return [name for name in one | other if one.get(name) != other.get(name)]
