"""How long training waits for its data, and how much faster the loader is than a step."""

import itertools
import json
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Contestant
from benchmarks.figures import footer, setting_of, spread, told
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

PACKAGES = ("torch", "numpy")
DATA, SETTING, TRAINING = "data", "setting.json", "run"


@dataclass(frozen=True, slots=True)
class Setting:
    recipes: tuple[str, ...] = ("bert_mini", "roberta_mini")
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    repetitions: int = 5
    steps: int = 41  # of a run; the first one stands apart
    batches: int = 500  # of the loader alone, in a repetition
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        return Setting(repetitions=2, steps=21, batches=200)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from clozeworks.corpus import documents
    from clozeworks.data.shards.prepare import prepare

    begin = time.monotonic()
    threads = setting.threads or doctor.cores()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        text = itertools.islice(documents("en"), setting.documents)
        done = prepare(text, folder / DATA, vocab=setting.vocab, heldout=0)
        children = {each: Contestant("loader", folder, threads, each) for each in setting.recipes}
        segments: dict[str, list[Any]] = {each: [] for each in children}
        try:
            for _ in range(setting.repetitions):
                for each, child in children.items():
                    segments[each].append(child.go(setting.steps))
        finally:
            for child in children.values():
                child.close()
    return {
        "benchmark": "loader",
        "workload": {"text": "embedded, en", **asdict(done.splits["train"]), "vocabulary": setting.vocab},
        "recipes": {each: summary(rows) for each, rows in segments.items()},
        "repetitions": setting.repetitions,
        "steps": setting.steps,
        "segments": segments,
        **setting_of(threads, PACKAGES, begin),
    }


class Runs:
    """Runs of one recipe in this process, and its loader alone."""

    def __init__(self, folder: Path, name: str):
        from clozeworks.recipes import recipe

        self.setting = json.loads((folder / SETTING).read_text())
        self.folder, self.recipe = folder, recipe(name)
        train = self.recipe.train
        train.log_every, train.save_every = 5, 10**9

    def go(self, steps: int) -> dict[str, Any]:
        return {**self.train(steps), **self.load(self.setting["batches"])}

    def train(self, steps: int) -> dict[str, Any]:
        """A fresh run, as `clozeworks pretrain` makes it; what its own metrics say of waiting."""
        from clozeworks.train import metrics_log
        from clozeworks.train import run_dir as folder
        from clozeworks.train.pretrain import pretrain

        out = self.folder / f"{TRAINING}-{self.recipe.name}"
        self.recipe.train.steps = steps
        cpu = time.process_time()
        pretrain(self.recipe, [(self.folder / DATA, 1.0)], out, progress=False)
        cpu = time.process_time() - cpu
        rows = metrics_log.read(out / folder.METRICS)
        shutil.rmtree(out)
        return waiting(rows) | {"run_cpu_seconds": cpu}

    def load(self, batches: int) -> dict[str, Any]:
        """The batches of so many steps made one after another, nobody training meanwhile."""
        from clozeworks.data.shards.corpus import Corpus
        from clozeworks.data.tokens.tokenizer import Tokenizer
        from clozeworks.train.pretraining_batches import PretrainingBatches

        vocabulary = Tokenizer.load(self.folder / DATA).vocabulary()
        self.recipe.train.steps = batches + 1
        steps = iter(PretrainingBatches(self.recipe, [(Corpus.open(self.folder / DATA), 1.0)], vocabulary))
        next(steps)
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(batches):
            next(steps)
        return {
            "batches": batches,
            "loader_seconds": time.perf_counter() - begin,
            "loader_cpu_seconds": time.process_time() - cpu,
        }


def waiting(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """From the rows of metrics.jsonl: the first step waits for the first epoch to be planned, so it stands apart."""
    spans, before = [], 0
    for row in rows:
        spans.append((row["tokens"] - before) / row["tokens_per_second"])
        before = row["tokens"]
    shares = [row["data_wait_share"] for row in rows]
    waited = [share * seconds for share, seconds in zip(shares, spans, strict=True)]
    return {
        "steps": rows[-1]["step"] - rows[0]["step"],
        "seconds": sum(spans[1:]),
        "waited": sum(waited[1:]),
        "first_step_waited": waited[0],
        "highest_share": max(shares[1:]),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [row["steps"] / row["seconds"] for row in rows]
    batches = [row["batches"] / row["loader_seconds"] for row in rows]
    return {
        "data_wait_share": spread([row["waited"] / row["seconds"] for row in rows], 5),
        "highest_logged_share": max(row["highest_share"] for row in rows),
        "first_step_waited_ms": round(1000 * statistics.median(row["first_step_waited"] for row in rows), 1),
        "steps_per_second": round(statistics.median(steps), 3),
        "loader_batches_per_second": round(statistics.median(batches), 1),
        "loader_cpu_ms_a_batch": round(
            1000 * statistics.median(row["loader_cpu_seconds"] / row["batches"] for row in rows), 3
        ),
        "ratio": spread([loaded / trained for loaded, trained in zip(batches, steps, strict=True)]),
    }


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for name in figures["recipes"]:
        table.add_column(name, justify="right", no_wrap=True)
    every = list(figures["recipes"].values())
    shares = [each["data_wait_share"] for each in every]
    table.add_row(
        "time spent waiting",
        *(f"{each['median']:.2%}  ({each['lowest']:.2%} to {each['highest']:.2%})" for each in shares),
    )
    table.add_row("  most in five steps", *(f"{each['highest_logged_share']:.2%}" for each in every))
    table.add_row("first wait, ms", *(f"{each['first_step_waited_ms']:,.0f}" for each in every))
    table.add_row("steps a second", *(f"{each['steps_per_second']:.2f}" for each in every))
    table.add_row("batches a second, alone", *(f"{each['loader_batches_per_second']:,.0f}" for each in every))
    table.add_row("  ratio", *(told(each["ratio"]) for each in every))
    return Group(
        f"{figures['workload']['tokens']:,} tokens; {figures['machine']['threads']} threads; "
        f"{figures['repetitions']} runs of {figures['steps']} steps each, in turns",
        "",
        table,
        "",
        footer(figures),
    )
