"""How long training waits for its data, and how much faster the loader is than a step."""

import itertools
import shutil
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import Side, benchmark, closing, footer, format_spread, per, spread
from benchmarks.side import answer

if TYPE_CHECKING:
    from rich.console import RenderableType

DATA, TRAINING = "data", "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The recipes that are trained, on how much text, for how long."""

    recipes: tuple[str, ...] = ("bert_mini", "roberta_mini")
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    steps: int = 41  # of a run; the first one stands apart
    batches: int = 500  # of the loader alone, in a repetition

    @classmethod
    def quick(cls) -> "Setting":
        return cls(repetitions=2, steps=21, batches=200)


@benchmark("loader", ("torch", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train each recipe, and load its batches alone, in turns."""
    from clozeworks.corpus import documents
    from clozeworks.data.shards.prepare import prepare

    text = itertools.islice(documents("en"), setting.documents)
    done = prepare(text, folder / DATA, vocab=setting.vocab, heldout=0)
    with closing({each: Side("loader", folder, setting.cores, each) for each in setting.recipes}) as sides:
        segments = harness.take_turns(sides, setting.steps, setting.repetitions)
    return {
        "workload": {"text": "embedded, en", **asdict(done.splits["train"]), "vocabulary": setting.vocab},
        "recipes": {each: summary(some) for each, some in segments.items()},
        "repetitions": setting.repetitions,
        "steps": setting.steps,
        "segments": segments,
    }


def serve(folder: Path, answers: IO[str], name: str) -> None:
    """What a side does: train and load one recipe, again for every line."""
    runs = Runs(folder, name)
    while steps := int(sys.stdin.readline().strip() or 0):
        answer(answers, runs.go(steps))


class Runs:
    """Runs of one recipe in this process, and its loader alone."""

    def __init__(self, folder: Path, name: str):
        from clozeworks.recipes import recipe

        self.setting = Setting.read(folder)
        self.folder, self.recipe = folder, recipe(name)
        train = self.recipe.train
        train.log_every, train.save_every = 5, 10**9

    def go(self, steps: int) -> dict[str, Any]:
        return {**self.train(steps), **self.load(self.setting.batches)}

    def train(self, steps: int) -> dict[str, Any]:
        """A fresh run, as `clozeworks pretrain` makes it; what its own metrics say of waiting."""
        from clozeworks.train import metrics_log, run_dir
        from clozeworks.train.pretrain import pretrain

        out = self.folder / f"{TRAINING}-{self.recipe.name}"
        self.recipe.train.steps = steps
        cpu = time.process_time()
        pretrain(self.recipe, [(self.folder / DATA, 1.0)], out, progress=False)
        cpu = time.process_time() - cpu
        records = metrics_log.read(out / run_dir.METRICS)
        shutil.rmtree(out)
        return measure_waiting(records) | {"run_cpu_seconds": cpu}

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


def measure_waiting(records: list[dict[str, Any]]) -> dict[str, Any]:
    """From the records of metrics.jsonl: the first step waits for the first epoch to be planned, so it stands apart."""
    spans, before = [], 0
    for record in records:
        spans.append((record["tokens"] - before) / record["tokens_per_second"])
        before = record["tokens"]
    shares = [record["data_wait_share"] for record in records]
    waited = [share * seconds for share, seconds in zip(shares, spans, strict=True)]
    return {
        "steps": records[-1]["step"] - records[0]["step"],
        "seconds": sum(spans[1:]),
        "waited": sum(waited[1:]),
        "first_step_waited": waited[0],
        "highest_share": max(shares[1:]),
    }


def summary(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Waiting, steps and batches a second, and the ratio of the two in each run."""
    steps, batches = per(segments, "steps", "seconds"), per(segments, "batches", "loader_seconds")
    return {
        "data_wait_share": spread(per(segments, "waited", "seconds"), 5),
        "highest_logged_share": max(each["highest_share"] for each in segments),
        "first_step_waited_ms": round(1000 * statistics.median(each["first_step_waited"] for each in segments), 1),
        "steps_per_second": round(statistics.median(steps), 3),
        "loader_batches_per_second": round(statistics.median(batches), 1),
        "loader_cpu_ms_a_batch": round(1000 * statistics.median(per(segments, "loader_cpu_seconds", "batches")), 3),
        "ratio": harness.ratio_of_pairs(batches, steps),
    }


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    table = harness.make_table("", *results["recipes"], wrap=False)
    every = list(results["recipes"].values())
    shares = [each["data_wait_share"] for each in every]
    table.add_row(
        "time spent waiting",
        *(f"{each['median']:.2%}  ({each['lowest']:.2%} to {each['highest']:.2%})" for each in shares),
    )
    table.add_row("  most in five steps", *(f"{each['highest_logged_share']:.2%}" for each in every))
    table.add_row("first wait, ms", *(f"{each['first_step_waited_ms']:,.0f}" for each in every))
    table.add_row("steps a second", *(f"{each['steps_per_second']:.2f}" for each in every))
    table.add_row("batches a second, alone", *(f"{each['loader_batches_per_second']:,.0f}" for each in every))
    table.add_row("  ratio", *(format_spread(each["ratio"]) for each in every))
    return Group(
        f"{results['workload']['tokens']:,} tokens; {results['machine']['threads']} threads; "
        f"{results['repetitions']} runs of {results['steps']} steps each, in turns",
        "",
        table,
        "",
        footer(results),
    )
