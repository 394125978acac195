"""What the same CPU seconds teach the same small model: ours, and `transformers`' Trainer with and without our start.

    ours        a recipe of ours as it is: its start, masks, schedule and packed rows
    trainer     the same class and shape from its own initialization, 15 % masked, blocks of the same length
    begun       the same with our start: weights that we exported before their first step

Text, tokenizer, tokens a step, rate, warm-up, decay and precision are the same; each side has as many steps as its
budget of CPU seconds has room for, by a trial of its own before the first seed, which is not counted and decides for
all seeds; the time to count the table of words is counted, where our start is used. All are scored by us on the same
held-out text and masks. Finished runs are kept in the file `--keep`, and the same command resumes; `--only ours` leaves
the others for later.
"""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import SETTING, Segments, ask, benchmark, footer
from benchmarks.side import answer
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.recipe import Recipe

SIDES = {"ours": "clozeworks", "trainer": "Trainer", "begun": "Trainer, our start"}
DATA, BEGUN, TRAINED = "data", "begun", "trained"
LEFT = 0.10  # the masked accuracy that says that a model has left word frequencies behind
EVALUATED = 20  # times in a run of ours: what that costs is counted
TRIAL = 12  # steps that a side is timed by, after four to get going


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """What is trained, on which text, for how long."""

    recipe: str = "cloze_mini"
    data: str | None = None  # text or a prepared directory; None: the embedded corpus
    vocab: int = 8192
    repetitions: int = 6  # seeds
    threads: int | None = 1
    cpu_seconds: float = 600.0
    cells: tuple[str, ...] = ()  # sides; none: all
    keep: str | None = None  # a file of JSON lines, one a finished run

    @classmethod
    def quick(cls) -> "Setting":
        return cls(recipe="cloze_tiny", vocab=4096, repetitions=2, cpu_seconds=30.0)


@benchmark("learning", ("torch", "transformers", "accelerate", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train every side for every seed, in turns."""
    from benchmarks import peer

    peer.library()
    for cell in setting.cells:
        if cell not in SIDES:
            raise InputError("--only", cell, "a side is needed", f"choose among {', '.join(SIDES)}")
    work = ask("learning", folder, setting.cores, "make")
    same = [work[name] for name in ("recipe", "text", "tokenizer", "cpu_seconds")]  # only such runs can be compared
    kept = Path(setting.keep or folder / "kept.jsonl")
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    done = {(line["side"], line["seed"]): line["result"] for line in lines if line["of"] == same}
    for seed in range(setting.repetitions):
        for side in setting.cells or SIDES:
            if (side, seed) not in done:
                first = next((result for (of, _), result in sorted(done.items()) if of == side), {})
                plan = first.get("steps", 0), first.get("precision", "auto")
                numbers = map(str, (seed, work["table_seconds"], *plan))
                done[side, seed] = ask("learning", folder, setting.cores, side, *numbers)
                lines.append({"of": same, "side": side, "seed": seed, "result": done[side, seed]})
                atomic_io.write_bytes(kept, "".join(json.dumps(line) + "\n" for line in lines).encode())
    seeds = {side: [result for (of, _), result in sorted(done.items()) if of == side] for side in SIDES}
    seeds = {side: results for side, results in seeds.items() if results}
    return {"text": setting.data or "embedded, en", "workload": work, **summary(seeds), "seeds": seeds}


def serve(folder: Path, answers: IO[str], act: str, *given: str) -> None:
    """What a side does: prepare the text, or train with a seed."""
    if act == "make":
        answer(answers, make(folder))
        return
    seed, table, steps, precision = given
    answer(answers, train(act, folder, int(seed), float(table), int(steps), precision))


def make(folder: Path) -> dict[str, Any]:
    """The text in two splits, or the directory that was prepared before."""
    from clozeworks.corpus import documents
    from clozeworks.data.shards.corpus import MANIFEST, Corpus
    from clozeworks.data.shards.prepare import prepare
    from clozeworks.starts.counted import CountedTable

    setting = Setting.read(folder)
    if setting.data is not None and (Path(setting.data) / MANIFEST).is_file():
        (folder / DATA).symlink_to(Path(setting.data).absolute())
    else:
        prepare(documents("en") if setting.data is None else setting.data, folder / DATA, vocab=setting.vocab)
    r, text = recipe_of(folder, 0), Corpus.open(folder / DATA, "train")
    stack, seconds = r.encoder.stack, 0.0
    for start in (start for start in r.start if isinstance(start, CountedTable)):
        clock, width = time.process_time(), r.encoder.embed.width or r.encoder.width
        start.vectors([(text, 1.0)], width)
        seconds += time.process_time() - clock
        start.table([(text, 1.0)], width)  # kept beside the data, where every side reads it
    return {
        "recipe": r.name,
        "depth": stack.depth,
        "width": r.encoder.width,
        "vocabulary": text.vocab,
        "tokens": len(text),
        "text": text.fingerprint,
        "tokenizer": text.tokenizer_fingerprint,
        "table_seconds": round(seconds, 2),
        "cpu_seconds": setting.cpu_seconds,
        "batch_tokens": r.train.batch_tokens,
        "learning_rate": r.train.learning_rate,
    }


def recipe_of(folder: Path, seed: int, precision: Any = "auto") -> "Recipe":
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.recipes import recipe
    from clozeworks.train.pretrain import fit_to_data

    r = fit_to_data(recipe(json.loads((folder / SETTING).read_text())["recipe"]), Tokenizer.load(folder / DATA))
    r.train.seed, r.train.precision = seed, precision
    return r


def train(side: str, folder: Path, seed: int, table: float, steps: int, precision: str) -> dict[str, Any]:
    """One side with one seed; CPU seconds of everything but the trial and the scores, those of its table too.

    No steps: as many as the budget has room for. How soon a model leaves the frequencies is told in seconds of the
    budget, since other work on the machine makes all seconds longer.
    """
    table = 0.0 if side == "trainer" else table  # counted once, and read from beside the data here
    clock = time.process_time()
    budget = Setting.read(folder).cpu_seconds - table
    run, recipe = folder / f"{side}-{seed}", recipe_of(folder, seed, precision)
    recipe, trial = (ours if side == "ours" else theirs)(side, folder, run, recipe, budget, steps)
    spent, steps = time.process_time() - clock - trial + table, recipe.train.steps
    result = {
        "steps": steps,
        "precision": recipe.train.precision,
        "cpu_seconds": round(spent, 1),
        **score(run / TRAINED, folder),
    }
    if side == "ours":
        result["left_seconds"] = left_after(run / "run", steps, table, budget)
    return result


def left_after(run: Path, steps: int, table: float, budget: float) -> float | None:
    """CPU seconds until held-out accuracy was first seen to be above `LEFT`; None: it never was."""
    from clozeworks.train import metrics_log
    from clozeworks.train.listing import METRICS

    for row in metrics_log.read(run / METRICS):
        if row.get("split") == "heldout" and row["masked_accuracy"] > LEFT:
            return round(table + budget * row["step"] / steps, 1)
    return None


def score(model: Path, folder: Path) -> dict[str, Any]:
    """On the held-out text, 15 % masked, the same masks for every side."""
    from clozeworks.evaluate.text import evaluate_text
    from clozeworks.inference.text_encoder import load

    encoder = load(model)
    encoder.recipe.objective = recipe_of(folder, 0).objective  # of which a directory of the peer says nothing
    metrics = evaluate_text(encoder, folder / DATA)
    names = ("masked_lm", "masked_accuracy", "bits_per_character", "unigram_accuracy", "unigram_loss", "count")
    return {name: metrics[name] for name in names}


def ours(side: str, folder: Path, run: Path, recipe: "Recipe", budget: float, steps: int) -> tuple["Recipe", float]:
    """As `clozeworks pretrain RECIPE --budget` does it."""
    from rich.console import Console

    from clozeworks.inference.text_encoder import load, save
    from clozeworks.train.pretrain import pretrain
    from clozeworks.train.resources.budget import fit_to_budget

    clock, data = time.process_time(), [(folder / DATA, 1.0)]
    if steps:
        recipe.train.steps = steps
    else:
        recipe, _ = fit_to_budget(recipe, data, f"{budget}s", None, "cpu")
    trial = time.process_time() - clock
    recipe.train.evaluate_every = max(recipe.train.steps // EVALUATED, 1)
    pretrain(recipe, data, run / "run", progress=False, console=Console(quiet=True))
    save(load(run / "run"), run / TRAINED)
    return recipe, trial


def theirs(side: str, folder: Path, run: Path, recipe: "Recipe", budget: float, steps: int) -> tuple["Recipe", float]:
    """The Trainer on blocks of the training text, from its own initialization or from our start."""
    from benchmarks import learning_peer
    from clozeworks.train.pretrain import choose_precision

    clock = time.process_time()
    recipe.train.precision = choose_precision(recipe, "cpu")
    rows = learning_peer.read_blocks(folder / DATA, recipe)
    begun = learning_peer.export_start(folder / DATA, recipe, run / BEGUN)
    how = {"fresh": side == "trainer"}
    ready = time.process_time() - clock
    if not steps:
        each = learning_peer.train(begun, rows, recipe, TRIAL, None, **how)
        steps = max(int((budget - ready) / each), 1)
    trial = time.process_time() - clock - ready
    learning_peer.train(begun, rows, recipe, steps, run / TRAINED, **how)
    return recipe, trial


def summary(seeds: Segments) -> dict[str, Any]:
    """Of each side the mean over seeds, and the lowest and highest of them."""
    sides = {}
    for side, runs in seeds.items():
        means = {name: [each[name] for each in runs] for name in runs[0] if name not in ("left_seconds", "precision")}
        left = [each["left_seconds"] for each in runs if each.get("left_seconds") is not None]
        sides[side] = {
            **{name: round(statistics.mean(values), 4) for name, values in means.items()},
            **({"left_seconds": max(left)} if left and len(left) == len(runs) else {}),
            "lowest": min(each["masked_accuracy"] for each in runs),
            "highest": max(each["masked_accuracy"] for each in runs),
        }
    return {"sides": sides}


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work, sides = results["workload"], results["sides"]
    names = [side for side in SIDES if side in sides]
    table = harness.make_table("", *(SIDES[side] for side in names))
    for label, key, form in (
        ("masked accuracy", "masked_accuracy", ".1%"),
        ("  lowest of the seeds", "lowest", ".1%"),
        ("  highest", "highest", ".1%"),
        ("masked loss", "masked_lm", ".3f"),
        ("bits per character", "bits_per_character", ".3f"),
        ("steps", "steps", ",.0f"),
        ("CPU seconds", "cpu_seconds", ",.0f"),
    ):
        table.add_row(label, *(format(sides[side][key], form) for side in names))
    any_side = sides[names[0]]
    left = sides.get("ours", {}).get("left_seconds")
    counts = ", ".join(str(len(results["seeds"][side])) for side in names)
    return Group(
        f"{work['recipe']}, {work['depth']} x {work['width']}, vocabulary {work['vocabulary']:,}; "
        f"text: {results['text']}, {work['tokens']:,} tokens; "
        f"{work['cpu_seconds']:,.0f} CPU seconds; seeds: {counts}",
        "",
        table,
        "",
        f"word frequencies alone: {any_side['unigram_accuracy']:.1%}, loss {any_side['unigram_loss']:.3f}",
        *([f"ours was above {LEFT:.0%} within {left:,.0f} CPU seconds with every seed"] if left else []),
        footer(results),
    )
