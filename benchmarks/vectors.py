"""Word vectors against gensim: the same sentences, settings and threads, fresh processes, in turns.

gensim reads lists of words held in memory, its usual way, or a file by its own reader, which is its fastest. Speed is
words of the text times epochs by the seconds of training; reading and counting are apart.
"""

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.cells import check_cells
from benchmarks.harness import Segments, benchmark, environment, format_known, format_spread, make_table, median_or_none
from benchmarks.memory import bare_interpreter, watch
from benchmarks.vector_sides import SIDES, TEXT
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

CELLS = ("skipgram", "cbow", "skipgram-tree", "cbow-tree")
THEIRS = ("lists", "file")
MEASURED = ("words_per_second", "words_per_cpu_second", "seconds_reading", "above_bare_mb", "peak_anonymous_mb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """What is trained on which text, and how it is scored."""

    cells: tuple[str, ...] = ("skipgram", "cbow")
    data: str | None = None  # text instead of the embedded one
    judge: tuple[str, ...] = ()  # files of scored pairs and of analogies
    megabytes: float = 20.0  # of the embedded text
    dim: int = 100
    window: int = 5
    negative: int = 5
    epochs: int = 5
    min_count: int = 5
    sample: float = 1e-3
    workers: int = 2
    repetitions: int = 3  # seeds

    @classmethod
    def quick(cls) -> "Setting":
        return cls(megabytes=4.0, epochs=2, repetitions=2)

    @property
    def cores(self) -> int:
        return self.workers


@benchmark("vectors", ("gensim", "numba", "numpy", "scipy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train every cell with every side, a seed a repetition, and score the vectors."""
    check_cells(setting.cells, CELLS)
    for name in setting.judge:
        if not Path(name).is_file():
            raise InputError("--judge", name, "no such file", "check the path")
    need_peer()
    bare, text = bare_interpreter(), write_text(folder, setting)
    train_side(folder, "warm", "skipgram", 0, workers=setting.workers, bare=bare)  # it compiles the kernels
    cells = {}
    for cell in setting.cells:
        segments: Segments = {each: [] for each in SIDES}
        for side in harness.alternate(SIDES, setting.repetitions):
            seed = len(segments[side]) + 1
            facts = train_side(folder, side, cell, seed, workers=setting.workers, bare=bare)
            segments[side].append(facts | {"quality": score(folder, setting.judge)})
        cells[cell] = {**summary(segments), "segments": segments}
    return {
        "workload": {"text": setting.data or "embedded, en, dealt anew", **text, **_shape(setting)},
        "cells": cells,
        "bare_interpreter_mb": bare,
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
    facts = {"sentences": len(words.ends), "words": int(words.counts[stay].sum()), "vocabulary": int(stay.sum())}
    if facts["vocabulary"] < 2:
        raise InputError("--data", source, "text with words that come again is needed", "give more of it")
    return facts


def train_side(folder: Path, side: str, cell: str, seed: int, *, workers: int, bare: float) -> dict[str, Any]:
    """One side from the text to vectors, watched from outside."""
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a product of two vectors is no work for threads
    watched = watch(
        "vector_sides", str(folder), side, cell, str(seed),
        environment=environment(workers) | single, log=folder / f"{side}.log",
    )  # fmt: skip
    return {**json.loads(watched.lines[0]), **watched.memory, "above_bare_mb": watched.above(bare)}


def score(folder: Path, files: tuple[str, ...]) -> dict[str, float]:
    """Rank correlations and shares of right answers of the vectors that were made last, by file."""
    from clozeworks.vectors.evaluate import analogies, read_pairs, similarity
    from clozeworks.vectors.table import Vectors

    if not files:
        return {}
    import numpy as np

    words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    vectors = Vectors(words, np.load(folder / "table.npy"))
    scores: dict[str, float] = {}
    for file in files:
        try:
            read_pairs(file)
        except InputError:
            scores[Path(file).stem] = analogies(vectors, file).total.accuracy
        else:
            scores[Path(file).stem] = similarity(vectors, file).spearman
    return {name: round(value, 4) for name, value in scores.items() if not math.isnan(value)}


def summary(segments: Segments) -> dict[str, Any]:
    """Medians of each side, its quality over the seeds, and ratios of ours by each of theirs, seed by seed."""
    sides = {}
    for name, some in segments.items():
        medians = {field: median_or_none([each[field] for each in some]) for field in MEASURED}
        quality = {file: _mean([each["quality"][file] for each in some]) for file in some[0]["quality"]}
        sides[name] = medians | {"quality": quality}
    ratios = {side: harness.ratios_by_field(segments["ours"], segments[side], MEASURED) for side in THEIRS}
    return {"sides": sides, "ratio": ratios}


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


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work = results["workload"]
    names = {"ours": "clozeworks", "lists": "gensim, lists", "file": "gensim, file"}
    files = next(iter(results["cells"].values()))["sides"]["ours"]["quality"]
    speeds = make_table("", "words/s", "a cpu second", "memory")
    ratios = make_table("by gensim", "words/s", "a cpu second", "memory")
    quality = make_table("quality", *names.values())
    for cell, each in results["cells"].items():
        sides = each["sides"]
        for name, side in sides.items():
            fast = (f"{side[field]:,.0f}" for field in MEASURED[:2])
            speeds.add_row(f"{cell}, {names[name]}", *fast, format_known(side["above_bare_mb"], ",.0f"))
        for their, ratio in each["ratio"].items():
            shown = (format_spread(ratio[name]) if name in ratio else "?" for name in (*MEASURED[:2], "above_bare_mb"))
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
        harness.long_footer(results),
    )
