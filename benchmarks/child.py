"""A side of a comparison as a process of its own, told what to do line by line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def environment(threads: int) -> dict[str, str]:
    """What a side inherits: our own code, so many threads, no network."""
    root = str(Path(__file__).parents[2])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.getenv("PYTHONPATH")])),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
    }


class Contestant:
    """A process that does one segment of work at a time."""

    def __init__(self, role: str, folder: Path, threads: int, *more: str):
        self.log = folder / f"{'-'.join((role, *more))}.log"
        command = [sys.executable, "-m", "benchmarks.contestant", role, str(folder), str(threads), *more]
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment(threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def go(self, steps: int, mode: str = "") -> dict[str, Any]:
        """So many steps, in a way of working if this side knows several."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{steps} {mode}".strip() + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died: reading says why
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(f"{self.log.stem} died with {self.process.returncode}:\n{self.log.read_text()[-4000:]}")
        return json.loads(line)

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def turns(sides: dict[str, Contestant], warmup: int, repetitions: int, steps: int) -> dict[str, list[Any]]:
    """Segments in turns, one side resting while the others work; who goes first changes each time."""
    segments: dict[str, list[Any]] = {name: [] for name in sides}
    try:
        for side in sides.values():
            side.go(warmup)
        for turn in range(repetitions):
            for name in sides if turn % 2 == 0 else reversed(sides):
                segments[name].append(sides[name].go(steps))
    finally:
        for side in sides.values():
            side.close()
    return segments


def ask(role: str, folder: Path, threads: int, *more: str) -> dict[str, Any]:
    child = Contestant(role, folder, threads, *more)
    try:
        return child.answer()
    finally:
        child.close()
