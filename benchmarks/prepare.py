"""Our `prepare` against `datasets`: the same raw text, the same tokenizer, fresh processes, in turns."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import raw_text
from benchmarks.child import environment
from benchmarks.figures import footer, setting_of, spread, told
from benchmarks.memory import Watcher, held
from clozeworks.core.errors import InputError
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "theirs")
PACKAGES = ("tokenizers", "numpy", "datasets", "transformers", "pyarrow")
NEAR = 1e-3  # the share of tokens by which the two may differ: a special token written in the text is text to us


@dataclass(frozen=True, slots=True)
class Setting:
    megabytes: float = 40.0
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus, repeated; None: all
    repetitions: int = 5
    processes: int | None = None  # None: one for each core
    data: str | None = None  # a .jsonl or .txt file instead of the embedded text

    @staticmethod
    def quick() -> "Setting":
        return Setting(megabytes=12.0, repetitions=2)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    need_peer()
    begin = time.monotonic()
    cores = setting.processes or doctor.cores()
    bare = bare_interpreter()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        text = given(setting.data) if setting.data else folder / "text.jsonl"
        if not setting.data:
            raw_text.write(text, setting.megabytes, setting.documents)
        raw_text.train(folder, text, setting.vocab)
        contestants = [(side, count) for count in sorted({1, cores}) for side in SIDES]
        rows: dict[str, list[Any]] = {label(*each): [] for each in contestants}
        for turn in range(setting.repetitions):
            for each in contestants if turn % 2 == 0 else contestants[::-1]:
                rows[label(*each)].append(measure(*each, folder, text, cores, bare))
        size = text.stat().st_size
    tokens = {name: found[0]["tokens"] for name, found in rows.items()}
    if max(tokens.values()) - min(tokens.values()) > NEAR * max(tokens.values()):
        raise RuntimeError(f"the two do not do the same work: {tokens} tokens")
    return {
        "benchmark": "prepare",
        "workload": {
            "text": setting.data or "embedded, en, dealt anew",
            "bytes": size,
            "tokens": tokens,
            "vocabulary": setting.vocab,
        },
        **summary(rows, cores),
        "bare_interpreter_mb": bare,
        "repetitions": setting.repetitions,
        "segments": rows,
        **setting_of(cores, PACKAGES, begin),
    }


def measure(side: str, processes: int, folder: Path, text: Path, threads: int, bare: float) -> dict[str, Any]:
    """One side from nothing to tokens on disk, watched from outside."""
    out, log = folder / "out", folder / f"{side}.log"
    out.mkdir()
    command = [sys.executable, "-m", "benchmarks.preparers", side, str(folder), str(text), str(processes)]
    begin = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=surroundings(out, threads, processes), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        assert child.stdout is not None
        watcher = Watcher(child.pid)
        watcher.start()
        try:
            took = child.stdout.readline()
            whole, memory = time.perf_counter() - begin, watcher.stop()
            counted = child.stdout.readline()
            if child.wait() or not counted:
                raise RuntimeError(f"{side} died with {child.returncode}:\n{log.read_text()[-4000:]}")
        finally:
            watcher.done.set()
            child.kill()
    disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shutil.rmtree(out)
    row = {**json.loads(took), "seconds_with_imports": whole, **memory, **json.loads(counted), "bytes_on_disk": disk}
    return row | {"above_bare_mb": round(memory["peak_mb"] - bare, 1) if bare else None}


def surroundings(out: Path, threads: int, processes: int) -> dict[str, str]:
    """Cold caches of its own, no network; `tokenizers` has threads where there is one process."""
    home = str(out / "home")
    return environment(threads) | {
        "HF_HOME": home,
        "HF_DATASETS_CACHE": home,
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "true" if processes == 1 else "false",
    }


def bare_interpreter() -> float:
    """Megabytes of a Python that does nothing; 0 where nobody can tell."""
    code = "import sys; print(flush=True); sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = held(child.pid).all
        child.communicate(b"\n")
    return round(found, 1)


def summary(rows: dict[str, list[Any]], cores: int) -> dict[str, Any]:
    """Medians of every contestant; ratios of ours by theirs with one process, with all cores, and of the fastest."""
    names = ("seconds", "cpu_seconds", "seconds_with_imports", "above_bare_mb", "peak_anonymous_mb", "before_work_mb")
    sides = {
        which: {name: median([row[name] for row in found]) for name in (*names, "bytes_on_disk", "processes")}
        for which, found in rows.items()
    }
    fastest = {
        side: min((label(side, n) for n in {1, cores}), key=lambda at: sides[at]["seconds"] or 0.0) for side in SIDES
    }
    pairs = {str(count): (label("ours", count), label("theirs", count)) for count in sorted({1, cores})}
    pairs["fastest"] = (fastest["ours"], fastest["theirs"])
    return {
        "sides": sides,
        "fastest": fastest,
        "ratio": {
            pair: {
                name: spread([a[name] / b[name] for a, b in zip(rows[ours], rows[theirs], strict=True)])
                for name in names[:-1]
                if all(row[name] for row in rows[ours] + rows[theirs])
            }
            for pair, (ours, theirs) in pairs.items()
        },
    }


def label(side: str, processes: int) -> str:
    return f"{side}, {processes}"


def median(values: list[Any]) -> float | None:
    return None if None in values else round(statistics.median(values), 2)


def given(name: str) -> Path:
    """A file that both sides can read."""
    file = Path(name).resolve()
    if not file.is_file():
        raise InputError("--data", name, "a file is needed", "check the path")
    if file.suffix not in (".jsonl", ".txt"):
        raise InputError("--data", name, "a .jsonl file with a field text, or a .txt file, is needed", "convert it")
    return file


def need_peer() -> None:
    try:
        import datasets  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise InputError("bench", f"{error.name} is not installed", "the peer is needed to compare with",
                         "pip install datasets 'clozeworks[hf]'") from None  # fmt: skip


def plural(count: str) -> str:
    return f"{count} process{'' if count == '1' else 'es'}"


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    work, sides = figures["workload"], figures["sides"]
    megabytes = work["bytes"] / 1e6
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("seconds", "cpu", "MB/s", "memory", "anonymous", "disk"):
        table.add_column(name, justify="right", no_wrap=True)
    names = {"ours": "clozeworks", "theirs": "datasets"}
    for name, row in sides.items():
        side, count = name.split(", ")
        memory = [row["above_bare_mb"], row["peak_anonymous_mb"]]
        table.add_row(
            f"{names[side]}, {plural(count)}",
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
            f"{megabytes / row['seconds']:.2f}",
            *("?" if each is None else f"{each:,.0f}" for each in memory),
            f"{row['bytes_on_disk'] / 1e6:,.0f}",
        )
    ratios = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    columns = {"seconds": "seconds", "cpu_seconds": "cpu", "above_bare_mb": "memory"}
    for name in ("ratio", *columns.values()):
        ratios.add_column(name, justify="left" if name == "ratio" else "right", no_wrap=True)
    for pair, ratio in figures["ratio"].items():
        title = "the fastest" if pair == "fastest" else plural(pair)
        ratios.add_row(title, *(told(ratio[name]) if name in ratio else "?" for name in columns))
    return Group(
        f"{megabytes:,.1f} MB of raw text to {work['tokens']['ours, 1']:,} tokens on disk; "
        f"{figures['repetitions']} repetitions in turns",
        "",
        table,
        "",
        ratios,
        "",
        "Ratios are ours by theirs: below 1 is less. Seconds (cpu: processor seconds) are of the work, imports apart;",
        "memory is the peak in MB of all processes together above a bare interpreter, anonymous: without mapped files.",
        footer(figures),
    )
