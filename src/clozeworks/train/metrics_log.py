"""metrics.jsonl: one object a logged step, the same file whether a run was interrupted or not (timings apart)."""

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks.core import atomic_io

if TYPE_CHECKING:  # torch comes with it, and whoever only reads rows does without
    from clozeworks.train.step import Step

TIMINGS = ("tokens_per_second", "tokens_per_cpu_second", "data_wait_share", "peak_memory_mb")


class Metrics:
    """Appends rows. Opened for a run that resumes after `step`, it first cuts off the rows of later steps."""

    def __init__(self, path: Path, step: int = 0):
        self.path = path
        if self.path.exists():
            before = self.path.read_bytes()
            kept = b"".join(line for line, row in _rows(before) if row["step"] <= step)
            if kept != before:
                atomic_io.write_bytes(self.path, kept)
        with atomic_io.explain_os_errors(self.path):
            self._file = self.path.open("ab", buffering=0)  # nothing is left to flush when a full disk ends the run

    def write(self, row: dict[str, Any]) -> None:
        with atomic_io.explain_os_errors(self.path):
            line = memoryview(json.dumps({name: _plain(value) for name, value in row.items()}).encode() + b"\n")
            while line:
                line = line[self._file.write(line) :]

    def sync(self) -> None:
        """On the disk: a checkpoint may follow, which promises the rows up to its step."""
        with atomic_io.explain_os_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with atomic_io.explain_os_errors(self.path):
            self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a run; a last line that a kill tore is left out."""
    return [row for _, row in _rows(path.read_bytes())] if path.exists() else []


def tail(path: Path, size: int = 1 << 20) -> tuple[list[dict[str, Any]], int]:
    """The rows in the last `size` bytes, and how many lines there are none; a torn last line is not one of these."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        begin = max(file.tell() - size, 0)
        file.seek(begin)
        lines = file.read().splitlines(keepends=True)[1 if begin else 0 :]  # of a cut, the first is a part
    rows, damaged = [], 0
    for line in lines:
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif line is not lines[-1] or line.endswith(b"\n"):
            damaged += 1
    return rows, damaged


class Pace:
    """Speed since it was last asked: evaluation and saving do not count."""

    def __init__(self) -> None:
        self.tokens, self.seconds, self.cpu_seconds, self.waited = 0, 0.0, 0.0, 0.0

    def add(self, step: "Step") -> None:
        self.tokens += step.tokens
        self.seconds += step.seconds
        self.cpu_seconds += step.cpu_seconds
        self.waited += step.waited

    def take(self) -> dict[str, float]:
        seconds = max(self.seconds, 1e-9)
        row = {
            "tokens_per_second": round(self.tokens / seconds, 1),
            "tokens_per_cpu_second": round(self.tokens / max(self.cpu_seconds, 1e-9), 1),
            "data_wait_share": round(self.waited / seconds, 4),
            "peak_memory_mb": round(peak_memory() / 1e6, 1),
        }
        self.__init__()
        return row


def make_row(step: "Step", tokens: int, pace: dict[str, float]) -> dict[str, Any]:
    """A row of metrics.jsonl; `tokens` are those of the run so far."""
    row = {
        "step": step.number,
        "loss": step.loss,
        "learning_rate": step.learning_rate,
        "tokens": tokens,
        **pace,
        "grad_norm": step.grad_norm,
        **step.metrics,
    }
    if not step.skipped:
        return row
    return row | {"skipped": True, "reason": step.reason, "examples": list(step.examples)}


def peak_memory() -> int:
    """Bytes this process has held at most, on the accelerator where it uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _rows(content: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines with what they hold, up to the first that is torn."""
    rows = []
    for line in content.splitlines(keepends=True):
        row = _row(line)
        if row is None:
            break
        rows.append((line, row))
    return rows


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def last_metrics(rows: list[dict[str, Any]], step: int | None = None) -> dict[str, Any] | None:
    """Those of the last evaluation among the rows, or of the last one at a step."""
    heldout = [row for row in rows if row.get("split") == "heldout" and step in (None, row["step"])]
    return {name: value for name, value in heldout[-1].items() if name not in ("step", "split")} if heldout else None
