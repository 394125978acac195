"""How much memory a process and its descendants hold at most, asked from outside, many times a second."""

import threading
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
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return Held(found.get("Pss", 0.0), found.get("Pss_Anon", 0.0))


def descendants(process: int) -> list[int]:
    """The process and all that it started, and what those started."""
    found = [process]
    for each in found:
        for file in (PROC / str(each) / "task").glob("*/children"):
            try:
                found += map(int, file.read_text().split())
            except OSError:  # it ended meanwhile
                continue
    return found


class Watcher(threading.Thread):
    """Watches a process from its start until it is told to stop; peaks of the sums over all processes."""

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
