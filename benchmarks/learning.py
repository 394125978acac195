"""What the same CPU seconds teach the same small model: ours, and `transformers`' Trainer with and without our start.

    ours        a recipe of ours as it is: its start, masks, schedule and packed rows
    trainer     the same class and shape from its own initialization, 15 % masked, blocks of the same length
    begun       the same with our start: weights that we exported before their first step

Text, tokenizer, tokens a step, rate, warm-up, decay and precision are the same; each side has as many steps as its
budget of CPU seconds has room for, counted from a trial of its own. All are scored by us on the same held-out text and
masks.
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

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.recipe import Recipe

SIDES = {"ours": "clozeworks", "trainer": "Trainer", "begun": "Trainer, our start"}
DATA, BEGUN, TRAINED = "data", "begun", "trained"
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

    @classmethod
    def quick(cls) -> "Setting":
        return cls(recipe="cloze_tiny", vocab=4096, repetitions=2, cpu_seconds=30.0)


@benchmark("learning", ("torch", "transformers", "accelerate", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train every side for every seed, in turns."""
    from benchmarks import peer

    peer.library()
    work = ask("learning", folder, setting.cores, "make")
    seeds: Segments = {side: [] for side in SIDES}
    for seed in range(setting.repetitions):
        for side in SIDES:
            seeds[side].append(ask("learning", folder, setting.cores, side, str(seed)))
    return {"text": setting.data or "embedded, en", "workload": work, **summary(seeds), "seeds": seeds}


def serve(folder: Path, answers: IO[str], act: str, *numbers: str) -> None:
    """What a side does: prepare the text, or train with a seed."""
    answer(answers, make(folder) if act == "make" else train(act, folder, int(numbers[0])))


def make(folder: Path) -> dict[str, Any]:
    """The text in two splits, or the directory that was prepared before."""
    from clozeworks.corpus import documents
    from clozeworks.data.shards.corpus import MANIFEST, Corpus
    from clozeworks.data.shards.prepare import prepare

    setting = Setting.read(folder)
    if setting.data is not None and (Path(setting.data) / MANIFEST).is_file():
        (folder / DATA).symlink_to(Path(setting.data).absolute())
    else:
        prepare(documents("en") if setting.data is None else setting.data, folder / DATA, vocab=setting.vocab)
    r, text = recipe_of(folder, 0), Corpus.open(folder / DATA, "train")
    stack = r.encoder.stack
    return {
        "recipe": r.name,
        "depth": stack.depth,
        "width": r.encoder.width,
        "vocabulary": text.vocab,
        "tokens": len(text),
        "tokenizer": text.tokenizer_fingerprint,
        "cpu_seconds": setting.cpu_seconds,
        "batch_tokens": r.train.batch_tokens,
        "learning_rate": r.train.learning_rate,
    }


def recipe_of(folder: Path, seed: int) -> "Recipe":
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.recipes import recipe
    from clozeworks.train.pretrain import fit_to_data

    r = fit_to_data(recipe(json.loads((folder / SETTING).read_text())["recipe"]), Tokenizer.load(folder / DATA))
    r.train.seed = seed
    return r


def train(side: str, folder: Path, seed: int) -> dict[str, Any]:
    """One side with one seed; CPU seconds of everything but the trial and the scores."""
    clock = time.process_time()
    budget = Setting.read(folder).cpu_seconds
    run = folder / f"{side}-{seed}"
    steps, trial = (ours if side == "ours" else theirs)(side, folder, run, seed, budget)
    spent = time.process_time() - clock - trial
    return {"steps": steps, "cpu_seconds": round(spent, 1), **score(run / TRAINED, folder)}


def score(model: Path, folder: Path) -> dict[str, Any]:
    """On the held-out text, 15 % masked, the same masks for every side."""
    from clozeworks.evaluate.text import evaluate_text
    from clozeworks.inference.text_encoder import load

    encoder = load(model)
    encoder.recipe.objective = recipe_of(folder, 0).objective  # of which a directory of the peer says nothing
    metrics = evaluate_text(encoder, folder / DATA)
    names = ("masked_lm", "masked_accuracy", "bits_per_character", "unigram_accuracy", "unigram_loss", "count")
    return {name: metrics[name] for name in names}


def ours(side: str, folder: Path, run: Path, seed: int, budget: float) -> tuple[int, float]:
    """As `clozeworks pretrain RECIPE --budget` does it."""
    from rich.console import Console

    from clozeworks.inference.text_encoder import load, save
    from clozeworks.train.pretrain import pretrain
    from clozeworks.train.resources.budget import fit_to_budget

    clock, data = time.process_time(), [(folder / DATA, 1.0)]
    recipe, _ = fit_to_budget(recipe_of(folder, seed), data, f"{budget}s", None, "cpu")
    trial = time.process_time() - clock
    recipe.train.evaluate_every = recipe.train.steps
    pretrain(recipe, data, run / "run", progress=False, console=Console(quiet=True))
    save(load(run / "run"), run / TRAINED)
    return recipe.train.steps, trial


def theirs(side: str, folder: Path, run: Path, seed: int, budget: float) -> tuple[int, float]:
    """The Trainer on blocks of the training text, from its own initialization or from our start."""
    from benchmarks import learning_peer

    clock = time.process_time()
    rows = learning_peer.read_blocks(folder / DATA, recipe_of(folder, seed))
    begun = learning_peer.export_start(folder / DATA, recipe_of(folder, seed), run / BEGUN)
    how = {"fresh": side == "trainer"}
    ready = time.process_time() - clock
    each = learning_peer.train(begun, rows, recipe_of(folder, seed), TRIAL, None, **how)
    steps = max(int((budget - ready) / each), 1)
    trial = time.process_time() - clock - ready
    learning_peer.train(begun, rows, recipe_of(folder, seed), steps, run / TRAINED, **how)
    return steps, trial


def summary(seeds: Segments) -> dict[str, Any]:
    """Of each side the mean over seeds, and how ours differs from it, seed by seed."""
    sides = {}
    for side, runs in seeds.items():
        sides[side] = {
            **{name: round(statistics.mean(each[name] for each in runs), 4) for name in runs[0]},
            "lowest": min(each["masked_accuracy"] for each in runs),
            "highest": max(each["masked_accuracy"] for each in runs),
        }
    return {"sides": sides}


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work, sides = results["workload"], results["sides"]
    table = harness.make_table("", *SIDES.values())
    for label, key, form in (
        ("masked accuracy", "masked_accuracy", ".1%"),
        ("  lowest of the seeds", "lowest", ".1%"),
        ("  highest", "highest", ".1%"),
        ("masked loss", "masked_lm", ".3f"),
        ("bits per character", "bits_per_character", ".3f"),
        ("steps", "steps", ",.0f"),
        ("CPU seconds", "cpu_seconds", ",.0f"),
    ):
        table.add_row(label, *(format(sides[side][key], form) for side in SIDES))
    ours = sides["ours"]
    return Group(
        f"{work['recipe']}, {work['depth']} x {work['width']}, vocabulary {work['vocabulary']:,}; "
        f"text: {results['text']}, {work['tokens']:,} tokens; "
        f"{work['cpu_seconds']:,.0f} CPU seconds; {len(results['seeds']['ours'])} seeds",
        "",
        table,
        "",
        f"word frequencies alone: {ours['unigram_accuracy']:.1%}, loss {ours['unigram_loss']:.3f}",
        footer(results),
    )
