"""What every benchmark is made of: a setting, sides in processes of their own, rounds in turns, a summary, a table.

A benchmark is a module with a `Setting`, a `run` under `@benchmark`, a `render`, and, where its sides are processes
(`Side`), a `serve` that each of them calls.
"""

import functools
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import clozeworks
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.table import Table

SETTING = "setting.json"
CLOCKS = ("seconds", "cpu_seconds")

Segments = dict[str, list[Any]]  # what each side said of each of its segments


# ---- the setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a benchmark measures; its fields are the options that it takes."""

    repetitions: int = 5
    threads: int | None = None  # None: every core this process may use

    @classmethod
    def quick(cls) -> Self:
        """A smaller one, for a first look."""
        raise NotImplementedError

    @property
    def cores(self) -> int:
        return self.threads or doctor.cores()

    def write(self, folder: Path) -> None:
        (folder / SETTING).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The setting that the sides of this folder work by."""
        given: dict[str, Any] = json.loads((folder / SETTING).read_text())
        given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return cls(**given)


AnySetting = TypeVar("AnySetting", bound=Setting)


def benchmark(
    name: str, packages: Sequence[str]
) -> Callable[[Callable[[AnySetting, Path], dict[str, Any]]], Callable[[AnySetting], dict[str, Any]]]:
    """Make a benchmark of a function from a setting and a folder to results.

    The folder is a temporary one, with the setting in it for the sides; where and how the results were taken is added.
    """

    def decorate(measure: Callable[[AnySetting, Path], dict[str, Any]]) -> Callable[[AnySetting], dict[str, Any]]:
        @functools.wraps(measure)
        def run(setting: AnySetting) -> dict[str, Any]:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as folder:
                setting.write(Path(folder))
                results = measure(setting, Path(folder))
            return {"benchmark": name, **results, **describe_run(setting.cores, packages, begin)}

        return run

    return decorate


# ---- sides


def environment(threads: int) -> dict[str, str]:
    """What a side inherits: these benchmarks and this library from any directory, so many threads, no network."""
    sources = [str(Path(__file__).parents[1]), str(Path(clozeworks.__file__).parents[1])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [*sources, os.getenv("PYTHONPATH")])),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
    }


class Side:
    """A side of a comparison as a process: `serve` of a benchmark's module, which does a segment for each line."""

    def __init__(self, module: str, folder: Path, threads: int, *words: str):
        self.log = folder / f"{'-'.join((module, *words))}.log"
        command = [sys.executable, "-m", "benchmarks.side", module, str(folder), str(threads), *words]
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


@contextmanager
def closing(sides: dict[str, Side]) -> Iterator[dict[str, Side]]:
    """The sides, ended when they are no longer needed."""
    try:
        yield sides
    finally:
        for side in sides.values():
            side.close()


def ask(module: str, folder: Path, threads: int, *words: str) -> dict[str, Any]:
    """The one answer of a side that is asked for nothing else."""
    with closing({module: Side(module, folder, threads, *words)}) as sides:
        return sides[module].answer()


# ---- rounds


def alternate(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Whose turn it is, round by round; who goes first changes each time."""
    forward = list(names)
    for turn in range(rounds):
        yield from forward if turn % 2 == 0 else reversed(forward)


def take_turns(sides: dict[str, Side], steps: int | dict[str, int], rounds: int, mode: str = "") -> Segments:
    """A segment of each side in each round, one working while the others rest."""
    segments: Segments = {name: [] for name in sides}
    for name in alternate(sides, rounds):
        segments[name].append(sides[name].go(steps if isinstance(steps, int) else steps[name], mode))
    return segments


def compare(sides: dict[str, Side], *, warmup: int, rounds: int, steps: int) -> Segments:
    """Warm the sides up, let them take turns, end them."""
    with closing(sides):
        for side in sides.values():
            side.go(warmup)
        return take_turns(sides, steps, rounds)


# ---- summary


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "lowest": round(min(values), digits),
        "highest": round(max(values), digits),
    }


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median and spread of the ratios within each round: what slows a round down slows both sides."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)], digits)


def ratios_by_field(ours: Sequence[Any], theirs: Sequence[Any], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The ratio of each field that is known, and not nothing, in every segment."""
    return {
        name: ratio_of_pairs([each[name] for each in ours], [each[name] for each in theirs])
        for name in names
        if all(each[name] for each in (*ours, *theirs))
    }


def median_or_none(values: Sequence[Any], digits: int = 2) -> float | None:
    """The median; None where one of the values is not known."""
    return None if None in values else round(statistics.median(values), digits)


def per(segments: Sequence[Any], above: str, below: str) -> list[float]:
    """One field by another, of each segment."""
    return [each[above] / each[below] for each in segments]


def summarize(segments: Segments, ours: str = "ours", theirs: str = "theirs") -> dict[str, Any]:
    """Medians of each side, and the ratio of each round's pair with its spread, by both clocks."""
    sides = {}
    for name, some in segments.items():
        sides[name] = {
            "tokens_per_second": round(statistics.median(per(some, "tokens", "seconds")), 1),
            "tokens_per_cpu_second": round(statistics.median(per(some, "tokens", "cpu_seconds")), 1),
            "real_tokens_a_step": round(sum(each["tokens"] for each in some) / sum(each["steps"] for each in some), 1),
            "peak_mb": some[-1]["peak_mb"],
        }
    peaks = sides[ours]["peak_mb"], sides[theirs]["peak_mb"]
    return {
        "sides": sides,
        "repetitions": len(segments[ours]),
        "ratio": {
            clock: ratio_of_pairs(per(segments[ours], "tokens", clock), per(segments[theirs], "tokens", clock))
            for clock in CLOCKS
        },
        "peak_memory_ratio": round(peaks[0] / peaks[1], 3) if all(peaks) else None,
    }


# ---- the common fields


def describe_run(threads: int, packages: Sequence[str], begin: float) -> dict[str, Any]:
    """Where and how results were taken; `begin` is when, by the monotonic clock."""
    return {
        "machine": {**doctor.machine(), "threads": threads, "load_average": os.getloadavg()},
        "versions": versions(packages),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "seconds": round(time.monotonic() - begin, 1),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


# ---- the table


def make_table(*columns: str, left: int = 1, wrap: bool = True) -> "Table":
    """A table of plain columns; all but the first `left` are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=not wrap)
    return table


def format_spread(ratio: dict[str, float]) -> str:
    """A ratio with its spread, for a table."""
    digits = 2 if ratio["median"] < 10 else 1
    return f"{ratio['median']:.{digits}f}  ({ratio['lowest']:.{digits}f} to {ratio['highest']:.{digits}f})"


def format_known(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def compare_speeds(cells: dict[str, Any], digits: int = 0) -> list[tuple[str, ...]]:
    """A line for each cell that `summarize` made: both speeds, both ratios, memory."""
    return [
        (
            name,
            *(f"{cell['sides'][side]['tokens_per_second']:,.{digits}f}" for side in ("ours", "theirs")),
            *(format_spread(cell["ratio"][clock]) for clock in CLOCKS),
            format_known(cell["peak_memory_ratio"], ".2f"),
        )
        for name, cell in cells.items()
    ]


def footer(results: dict[str, Any]) -> str:
    """The machine and the versions."""
    machine = results["machine"]
    named = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, load {machine['load_average'][0]:.1f}; {named}"


def long_footer(results: dict[str, Any]) -> str:
    """The same with precision, threads and the time that all of it took."""
    kind = f"{results['dtype']}, " if "dtype" in results else ""
    return f"{kind}{results['machine']['threads']} threads; {footer(results)}; {results['seconds']:,.0f} s"
