"""Word vectors against gensim: the same sentences, settings and threads, fresh processes, in turns.

gensim reads lists of words held in memory, its usual way, or a file by its own reader, which is its fastest. Speed is
words of the text times epochs by the seconds of training; reading and counting are apart.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import environment
from benchmarks.figures import footer, setting_of, spread, told
from benchmarks.memory import Watcher
from benchmarks.prepare import bare_interpreter
from benchmarks.vector_sides import SETTING, SIDES, TEXT
from clozeworks.core.errors import InputError, suggest

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

CELLS = ("skipgram", "cbow", "skipgram-tree", "cbow-tree")
THEIRS = ("lists", "file")
PACKAGES = ("gensim", "numba", "numpy", "scipy")
MEASURED = ("words_per_second", "words_per_cpu_second", "seconds_reading", "above_bare_mb", "peak_anonymous_mb")


@dataclass(frozen=True, slots=True)
class Setting:
    cells: tuple[str, ...] = ("skipgram", "cbow")
    data: str | None = None  # text instead of the embedded one
    judge: tuple[str, ...] = ()  # files of judged pairs and of analogies
    megabytes: float = 20.0  # of the embedded text
    dim: int = 100
    window: int = 5
    negative: int = 5
    epochs: int = 5
    min_count: int = 5
    sample: float = 1e-3
    workers: int = 2
    repetitions: int = 3  # seeds

    @staticmethod
    def quick() -> "Setting":
        return Setting(megabytes=4.0, epochs=2, repetitions=2)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    for name in setting.cells:
        if name not in CELLS:
            raise InputError("--only", name, "a cell of this benchmark is needed", suggest(name, CELLS))
    for name in setting.judge:
        if not Path(name).is_file():
            raise InputError("--judge", name, "no such file", "check the path")
    need_peer()
    begin, bare = time.monotonic(), bare_interpreter()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        text = write_text(folder, setting)
        side(folder, "warm", "skipgram", 0, setting.workers, bare)  # it compiles the kernels
        cells = {}
        for cell in setting.cells:
            rows: dict[str, list[Any]] = {each: [] for each in SIDES}
            for seed in range(setting.repetitions):
                for each in SIDES if seed % 2 == 0 else SIDES[::-1]:
                    row = side(folder, each, cell, seed + 1, setting.workers, bare)
                    rows[each].append(row | {"quality": judged(folder, setting.judge)})
            cells[cell] = {**summary(rows), "segments": rows}
    return {
        "benchmark": "vectors",
        "workload": {"text": setting.data or "embedded, en, dealt anew", **text, **_shape(setting)},
        "cells": cells,
        "bare_interpreter_mb": bare,
        **setting_of(setting.workers, PACKAGES, begin),
    }


def write_text(folder: Path, setting: Setting) -> dict[str, int]:
    """The sentences that all sides read: words with a space between them, a line each."""
    from benchmarks import raw_text
    from clozeworks.vectors.reading import read_words

    source = setting.data
    if source is None:
        source = str(folder / "raw.jsonl")
        raw_text.write(Path(source), setting.megabytes)
    words = read_words(source, marks=True)
    with (folder / TEXT).open("w", encoding="utf-8") as file:
        for sentence in words.sentences():
            file.write(" ".join(sentence) + "\n")
    stay = words.counts >= setting.min_count
    found = {"sentences": len(words.ends), "words": int(words.counts[stay].sum()), "vocabulary": int(stay.sum())}
    if found["vocabulary"] < 2:
        raise InputError("--data", source, "text with words that come again is needed", "give more of it")
    return found


def side(folder: Path, name: str, cell: str, seed: int, workers: int, bare: float) -> dict[str, Any]:
    """One side from the text to vectors, watched from outside."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "benchmarks.vector_sides", str(folder), name, cell, str(seed)]
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a product of two rows is no work for threads
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment(workers) | single, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        assert child.stdout is not None
        watcher = Watcher(child.pid)
        watcher.start()
        try:
            line = child.stdout.readline()
            memory = watcher.stop()
            if child.wait() or not line:
                raise RuntimeError(f"{name} died with {child.returncode}:\n{log.read_text()[-4000:]}")
        finally:
            watcher.done.set()
            child.kill()
    above = round(memory["peak_mb"] - bare, 1) if bare else None
    return {**json.loads(line), **memory, "above_bare_mb": above}


def judged(folder: Path, files: tuple[str, ...]) -> dict[str, float]:
    """Rank correlations and shares of right answers of the vectors that were made last, by file."""
    from clozeworks.vectors.evaluate import analogies, read_pairs, similarity
    from clozeworks.vectors.table import Vectors

    if not files:
        return {}
    import numpy as np

    words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    vectors = Vectors(words, np.load(folder / "table.npy"))
    found: dict[str, float] = {}
    for file in files:
        try:
            read_pairs(file)
        except InputError:
            found[Path(file).stem] = analogies(vectors, file).total.accuracy
        else:
            found[Path(file).stem] = similarity(vectors, file).spearman
    return {name: round(value, 4) for name, value in found.items() if not math.isnan(value)}


def summary(rows: dict[str, list[Any]]) -> dict[str, Any]:
    """Medians of each side, its quality over the seeds, and ratios of ours by each of theirs, seed by seed."""
    sides = {}
    for name, found in rows.items():
        medians = {each: _median([row[each] for row in found]) for each in MEASURED}
        files = found[0]["quality"]
        quality = {file: _mean([row["quality"][file] for row in found]) for file in files}
        sides[name] = medians | {"quality": quality}
    ratios = {
        their: {
            name: spread([ours[name] / theirs[name] for ours, theirs in zip(rows["ours"], rows[their], strict=True)])
            for name in MEASURED
            if all(row[name] for row in rows["ours"] + rows[their])
        }
        for their in THEIRS
    }
    return {"sides": sides, "ratio": ratios}


def _median(values: list[Any]) -> float | None:
    return None if None in values else round(statistics.median(values), 2)


def _mean(values: list[float]) -> dict[str, float]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": round(statistics.fmean(values), 4), "deviation": round(deviation, 4)}


def _shape(setting: Setting) -> dict[str, Any]:
    return {name: getattr(setting, name) for name in ("dim", "window", "negative", "epochs", "min_count", "sample")}


def need_peer() -> None:
    try:
        import gensim  # noqa: F401
    except ImportError:
        needed = "the peer is needed to compare with"
        raise InputError("bench", "gensim is not installed", needed, "pip install gensim") from None


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group

    work = figures["workload"]
    names = {"ours": "clozeworks", "lists": "gensim, lists", "file": "gensim, file"}
    files = next(iter(figures["cells"].values()))["sides"]["ours"]["quality"]
    speeds = _table("", "words/s", "a cpu second", "memory")
    ratios = _table("by gensim", "words/s", "a cpu second", "memory")
    quality = _table("quality", *names.values())
    for cell, found in figures["cells"].items():
        sides = found["sides"]
        for name, row in sides.items():
            memory = row["above_bare_mb"]
            fast = (f"{row[each]:,.0f}" for each in MEASURED[:2])
            speeds.add_row(f"{cell}, {names[name]}", *fast, "?" if memory is None else f"{memory:,.0f}")
        for their, ratio in found["ratio"].items():
            shown = (told(ratio[name]) if name in ratio else "?" for name in (*MEASURED[:2], "above_bare_mb"))
            ratios.add_row(f"{cell}, {their}", *shown)
        for file in files:
            scores = (sides[name]["quality"][file] for name in names)
            quality.add_row(f"{cell}, {file}", *(f"{each['mean']:.3f} ± {each['deviation']:.3f}" for each in scores))
    about = (
        f"{work['words']:,} words, {work['vocabulary']:,} different ones, {work['sentences']:,} sentences; "
        f"{work['dim']} dimensions, window {work['window']}, {work['negative']} negatives, {work['epochs']} epochs"
    )
    return Group(
        about,
        "",
        speeds,
        "",
        ratios,
        "",
        *((quality, "") if files else ()),
        "Memory is the peak in MB above a bare interpreter; quality the mean over seeds with its deviation.",
        f"{figures['machine']['threads']} threads; {footer(figures)}; {figures['seconds']:,.0f} s",
    )


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table
