"""Our `prepare` against `datasets`: the same raw text, the same tokenizer, fresh processes, in turns."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness, raw_text
from benchmarks.harness import Segments, benchmark, environment, footer, format_known, format_spread, median_or_none
from benchmarks.memory import bare_interpreter, watch
from clozeworks.core.errors import InputError
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "theirs")
NEAR = 1e-3  # the share of tokens by which the two may differ: a special token written in the text is text to us


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """How much text, and how many processes prepare it."""

    megabytes: float = 40.0
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus, repeated; None: all
    processes: int | None = None  # None: one for each core
    data: str | None = None  # a .jsonl or .txt file instead of the embedded text

    @classmethod
    def quick(cls) -> "Setting":
        return cls(megabytes=12.0, repetitions=2)

    @property
    def cores(self) -> int:
        return self.processes or doctor.cores()


@benchmark("prepare", ("tokenizers", "numpy", "datasets", "transformers", "pyarrow"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure both with one process and with all cores."""
    need_peer()
    cores, bare = setting.cores, bare_interpreter()
    text = check_text(setting.data) if setting.data else folder / "text.jsonl"
    if not setting.data:
        raw_text.write(text, setting.megabytes, setting.documents)
    raw_text.train(folder, text, setting.vocab)
    contestants = {label(side, count): (side, count) for count in sorted({1, cores}) for side in SIDES}
    segments: Segments = {name: [] for name in contestants}
    for name in harness.alternate(contestants, setting.repetitions):
        side, count = contestants[name]
        segments[name].append(measure(side, count, folder, text, threads=cores, bare=bare))
    tokens = {name: some[0]["tokens"] for name, some in segments.items()}
    if max(tokens.values()) - min(tokens.values()) > NEAR * max(tokens.values()):
        raise RuntimeError(f"the two do not do the same work: {tokens} tokens")
    return {
        "workload": {
            "text": setting.data or "embedded, en, dealt anew",
            "bytes": text.stat().st_size,
            "tokens": tokens,
            "vocabulary": setting.vocab,
        },
        **summary(segments, cores),
        "bare_interpreter_mb": bare,
        "repetitions": setting.repetitions,
        "segments": segments,
    }


def measure(side: str, processes: int, folder: Path, text: Path, *, threads: int, bare: float) -> dict[str, Any]:
    """One side from nothing to tokens on disk, watched from outside."""
    out = folder / "out"
    out.mkdir()
    watched = watch(
        "preparers", side, str(folder), str(text), str(processes),
        environment=surroundings(out, threads, processes), log=folder / f"{side}.log",
    )  # fmt: skip
    took, counted = map(json.loads, watched.lines)
    disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shutil.rmtree(out)
    facts = {**took, "seconds_with_imports": watched.seconds, **watched.memory, **counted, "bytes_on_disk": disk}
    return facts | {"above_bare_mb": watched.above(bare)}


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


def summary(segments: Segments, cores: int) -> dict[str, Any]:
    """Medians of every contestant; ratios of ours by theirs with one process, with all cores, and of the fastest."""
    names = ("seconds", "cpu_seconds", "seconds_with_imports", "above_bare_mb", "peak_anonymous_mb", "before_work_mb")
    sides = {
        which: {name: median_or_none([each[name] for each in some]) for name in (*names, "bytes_on_disk", "processes")}
        for which, some in segments.items()
    }
    fastest = {
        side: min((label(side, n) for n in {1, cores}), key=lambda at: sides[at]["seconds"] or 0.0) for side in SIDES
    }
    pairs = {str(count): (label("ours", count), label("theirs", count)) for count in sorted({1, cores})}
    pairs["fastest"] = (fastest["ours"], fastest["theirs"])
    ratios = {
        pair: harness.ratios_by_field(segments[ours], segments[theirs], names[:-1])
        for pair, (ours, theirs) in pairs.items()
    }
    return {"sides": sides, "fastest": fastest, "ratio": ratios}


def label(side: str, processes: int) -> str:
    return f"{side}, {processes}"


def check_text(name: str) -> Path:
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


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work, sides = results["workload"], results["sides"]
    megabytes = work["bytes"] / 1e6
    table = harness.make_table("", "seconds", "cpu", "MB/s", "memory", "anonymous", "disk", wrap=False)
    names = {"ours": "clozeworks", "theirs": "datasets"}
    for name, each in sides.items():
        side, count = name.split(", ")
        table.add_row(
            f"{names[side]}, {plural(count)}",
            f"{each['seconds']:.1f}",
            f"{each['cpu_seconds']:.1f}",
            f"{megabytes / each['seconds']:.2f}",
            *(format_known(each[kind], ",.0f") for kind in ("above_bare_mb", "peak_anonymous_mb")),
            f"{each['bytes_on_disk'] / 1e6:,.0f}",
        )
    columns = {"seconds": "seconds", "cpu_seconds": "cpu", "above_bare_mb": "memory"}
    ratios = harness.make_table("ratio", *columns.values(), wrap=False)
    for pair, ratio in results["ratio"].items():
        title = "the fastest" if pair == "fastest" else plural(pair)
        ratios.add_row(title, *(format_spread(ratio[name]) if name in ratio else "?" for name in columns))
    return Group(
        f"{megabytes:,.1f} MB of raw text to {work['tokens']['ours, 1']:,} tokens on disk; "
        f"{results['repetitions']} repetitions in turns",
        "",
        table,
        "",
        ratios,
        "",
        "Ratios are ours by theirs: below 1 is less. Seconds (cpu: processor seconds) are of the work, imports apart;",
        "memory is the peak in MB of all processes together above a bare interpreter, anonymous: without mapped files.",
        footer(results),
    )
