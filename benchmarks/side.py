"""One side of a comparison, in a process of its own: it works when a line asks it to, and answers in one JSON line.

python -m benchmarks.side MODULE FOLDER THREADS [WORDS ...]
"""

import importlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any


def answer(answers: IO[str], facts: dict[str, Any]) -> None:
    print(json.dumps(facts), file=answers, flush=True)


class Meter:
    """Counts a segment's tokens, seconds and processor seconds, and waits between segments."""

    def __init__(self, answers: IO[str]):
        self.answers, self.wanted, self.idle_cpu = answers, 0, time.process_time()

    def wait(self) -> bool:
        """Until the next segment; False if there is none."""
        if not self.wanted:
            self.base = memory_mb("VmRSS")
        line = sys.stdin.readline().strip()
        self.wanted = int(line or 0)
        self.steps = self.real = self.computed = 0
        self.begin, self.cpu = time.perf_counter(), self.idle_cpu  # work done while waiting is not free
        return self.wanted > 0

    def step(self, real: int, computed: int) -> bool:
        """One step was made; False when it was the last one."""
        self.steps, self.real, self.computed = self.steps + 1, self.real + real, self.computed + computed
        if self.steps < self.wanted:
            return True
        seconds = time.perf_counter() - self.begin
        cpu, self.idle_cpu = time.process_time() - self.cpu, time.process_time()
        facts = {"steps": self.steps, "tokens": self.real, "computed": self.computed}
        facts |= {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": memory_mb("VmHWM"), "base_mb": self.base}
        answer(self.answers, facts)
        return self.wait()

    def follow(self, steps: Iterable[int]) -> None:
        """Make steps, each of which says its tokens, for as long as segments are asked for."""
        if not self.wait():
            return
        for tokens in steps:
            if not self.step(tokens, tokens):
                return


def memory_mb(name: str) -> float | None:
    """What the kernel says of this process: VmRSS now, VmHWM at most; not ru_maxrss, which remembers the parent's."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    except OSError:  # not Linux
        return None
    return round(int(lines[name].split()[0]) / 1024, 1)


def main(module: str, folder: str, threads: str, *words: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not be taken for an answer
    import torch

    torch.set_num_threads(int(threads))
    importlib.import_module(f"benchmarks.{module}").serve(Path(folder), answers, *words)


if __name__ == "__main__":
    main(*sys.argv[1:])
