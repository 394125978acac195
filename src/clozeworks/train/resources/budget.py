"""A run that fits a budget of processor time: how large a model, and how many steps."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from clozeworks.core.durations import read_duration
from clozeworks.core.errors import InputError
from clozeworks.exchange import files
from clozeworks.exchange.bundle import Bundle
from clozeworks.recipe import Recipe, begin, build
from clozeworks.recipes import recipe as named
from clozeworks.train.listing import RECIPE
from clozeworks.train.pretrain import StrPath, choose_precision, fit_to_data, open_data, pick_device
from clozeworks.train.resources.dry_run import forecast
from clozeworks.train.teacher import check_teacher, describe_vectors, fit_to_teacher

# CPU seconds up to which each size is best at equal cost (docs/learning.md), and tokens that it should have at least to
# learn from: read more than a few times, a text teaches a larger model nothing new.
SIZES = (("cloze_tiny", 300, 0), ("cloze_mini", 2 * 3600, 1_000_000), ("cloze_small", 10 * 3600, 10_000_000))
LARGEST = ("cloze_base", 50_000_000)
TAUGHT = "cloze_mini_distilled"  # whatever the time: most of it is the teacher's
TRIED = 50  # steps are planned from a measurement, so they are a round number
# Masked accuracy at 15 % on held-out text that runs of these sizes ended with (docs/learning.md): what to hope for.
REACHED = {
    "cloze_tiny": "37 % in 2 CPU minutes, of Python's documentation as of Chinese reviews",
    "cloze_mini": "35 % in 10 CPU minutes, of 9 MB of English Wikipedia",
}
SPENT = 0.95  # of the budget on steps; the rest is for evaluations and checkpoints


def choose_size(cpu_seconds: float, tokens: int) -> str:
    """The recipe that learns most of so much text in so much processor time."""
    chosen = SIZES[0][0]
    for (name, most, _), (_, least) in zip(SIZES, [(n, t) for n, _, t in SIZES[1:]] + [LARGEST], strict=True):
        chosen = name
        if cpu_seconds <= most or tokens < least:
            return chosen
    return LARGEST[0]


def fit_to_budget(
    recipe: Recipe | None,
    data: Sequence[tuple[StrPath, float]],
    budget: str,
    run: StrPath | None,
    device: str,
    teacher: Bundle | None = None,
) -> tuple[Recipe, list[str]]:
    """The recipe, or of our own the one that suits, with as many steps as the budget has time for; and what to report.

    Processor seconds count, those of counting words and of a teacher included. A run that was begun keeps what was
    chosen for it.
    """
    seconds = read_duration("--budget", budget)
    if run is not None and (Path(run) / RECIPE).exists():
        return files.read_recipe(Path(run) / RECIPE), []
    corpora, tokenizer = open_data(data, "size")
    tokens = sum(len(corpus) for corpus, _ in corpora)
    recipe = recipe or named(choose_size(seconds, tokens) if teacher is None else TAUGHT)
    recipe.train.precision = choose_precision(recipe, pick_device(device))  # what is measured below holds for this one
    fitted = fit_to_teacher(fit_to_data(recipe, tokenizer), teacher)
    check_teacher(fitted, tokenizer, teacher)
    clock = time.process_time()
    # What is counted is kept beside the data.
    begin(fitted, build(fitted), corpora, tokenizer, describe_vectors(fitted, teacher))
    counted = time.process_time() - clock
    cost = forecast(recipe, data, device=device, teacher=teacher)
    each = cost.cpu_seconds / cost.steps
    steps = int((seconds - counted) * SPENT / each) // TRIED * TRIED
    if steps < TRIED:
        needed = f"a step takes {each:.2g} CPU seconds, and {TRIED} of them are the least"
        raise InputError("--budget", budget, needed, f"use at least {TRIED * each / SPENT + counted:.0f}s")
    recipe.train = dataclasses.replace(recipe.train, steps=steps, evaluate_every=max(steps // 6, 1))
    notes = [f"{recipe.name}, {steps:,} steps of {1000 * each:.0f} CPU ms: what {budget} of CPU time have room for"]
    if recipe.name in REACHED:
        notes.append(f"masked accuracy that {recipe.name} has reached: {REACHED[recipe.name]}")
    return recipe, notes
