"""How much memory a process and its descendants hold at most, asked from outside, many times a second."""

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

EVERY = 0.05  # seconds
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Held:
    """Megabytes: all that is held (shared pages divided among those who share them), and what no file stands behind."""

    all: float
    anonymous: float

    def __add__(self, other: "Held") -> "Held":
        return Held(self.all + other.all, self.anonymous + other.anonymous)


def held(process: int | str) -> Held:
    """By one process: nothing if it is gone, or where there is no such file (not Linux)."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return Held(0.0, 0.0)
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return Held(sizes.get("Pss", 0.0), sizes.get("Pss_Anon", 0.0))


def descendants(process: int) -> list[int]:
    """The process and all that it started, and what those started."""
    family = [process]
    for each in family:
        for file in (PROC / str(each) / "task").glob("*/children"):
            try:
                family += map(int, file.read_text().split())
            except OSError:  # it ended meanwhile
                continue
    return family


class Watcher(threading.Thread):
    """Watches a process from its start until it is asked to stop; peaks of the sums over all processes."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.process, self.done = process, threading.Event()
        self.peak, self.peak_anonymous, self.most, self.samples = 0.0, 0.0, 0, 0

    def run(self) -> None:
        while not self.done.wait(EVERY):
            processes = descendants(self.process)
            total = sum(map(held, processes), Held(0.0, 0.0))
            self.peak = max(self.peak, total.all)
            self.peak_anonymous = max(self.peak_anonymous, total.anonymous)
            self.most, self.samples = max(self.most, len(processes)), self.samples + 1

    def stop(self) -> dict[str, float]:
        self.done.set()
        self.join()
        return {
            "peak_mb": round(self.peak, 1),
            "peak_anonymous_mb": round(self.peak_anonymous, 1),
            "processes": self.most,
            "samples": self.samples,
        }


@dataclass(frozen=True, slots=True)
class Watched:
    """What a process answered, and what it took from its start to its first line."""

    lines: list[str]
    seconds: float
    memory: dict[str, float]

    def above(self, bare: float) -> float | None:
        """Megabytes of the peak beyond a bare interpreter; None where nobody can tell."""
        return round(self.memory["peak_mb"] - bare, 1) if bare else None


def watch(module: str, *words: str, environment: dict[str, str], log: Path) -> Watched:
    """Run a module of this package from start to end, its memory watched until it says its first line."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    begin = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        assert child.stdout is not None
        watcher = Watcher(child.pid)
        watcher.start()
        try:
            first = child.stdout.readline()
            seconds, memory = time.perf_counter() - begin, watcher.stop()
            lines = [first, *child.stdout.readlines()]
            if child.wait() or not first:
                raise RuntimeError(f"{log.stem} died with {child.returncode}:\n{log.read_text()[-4000:]}")
        finally:
            watcher.done.set()
            child.kill()
    return Watched(lines, seconds, memory)


def bare_interpreter() -> float:
    """Megabytes of a Python that does nothing; 0 where nobody can tell."""
    code = "import sys; print(flush=True); sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        bare = held(child.pid).all
        child.communicate(b"\n")
    return round(bare, 1)
