"""clozeworks examples"""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.cli import named, step_examples
from clozeworks.cli.arguments import Options
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import RaggedBatch
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.recipe import Recipe
from clozeworks.screen.console import closing, emit, facts, note, screen
from clozeworks.screen.drawing import brief, drawn, legend
from clozeworks.train.pretrain import fit_to_data
from clozeworks.train.pretraining_batches import PretrainingBatches, make_epoch


def run(options: Options) -> None:
    if options.run is not None or options.step is not None:
        of_a_step(options)
        return
    for name, given in (("RECIPE", options.recipe), ("--data", options.data)):
        if given is None:
            raise InputError("clozeworks examples", f"no {name}", "a recipe and prepared text are needed",
                             "or --run RUN --step N for the examples of a step of a run")  # fmt: skip
    recipe, refused = changed(named.recipe(options.recipe), options.set)
    directory = named.existing(options.data, "a prepared directory")
    text, tokenizer = Corpus.open(directory, options.split), Tokenizer.load(directory)
    seed = recipe.train.seed if options.seed is None else options.seed
    epoch = make_epoch(recipe, text, tokenizer, seed, options.epoch)
    index = chosen(options, len(epoch.plan))
    ragged = epoch.examples(index, sentences=True)
    if options.json:
        for at in range(len(index)):
            emit(as_json(ragged, at, tokenizer, int(index[at]), options.epoch))
        return
    tell(options, recipe, tokenizer, ragged, len(epoch.plan), index, directory)
    refused = refused or refusal(recipe, directory, tokenizer)
    if refused is not None:
        screen().print()
        note(screen(), f"to look at, not to train: {refused}")
        return
    changes = " ".join(f"--set {shlex.quote(change)}" for change in options.set)
    command = f"clozeworks pretrain {options.recipe} {changes}".strip()
    closing(screen(), None, f"{command} --data {shlex.quote(str(options.data))} --out run")


def of_a_step(options: Options) -> None:
    """A run knows its recipe and its text: nothing else may be said about them."""
    names = ("recipe", "data", "set", "index", "seed")
    other = [name for name in names if getattr(options, name) not in (None, [])]
    if options.run is None or options.step is None or other:
        given = f"also {other[0]}" if other else "one without the other"
        raise InputError("--run, --step", given, "a run and one of its steps are needed", "give these two alone")
    step_examples.show(options, as_json)


def changed(recipe: Recipe, changes: list[str]) -> tuple[Recipe, RecipeError | None]:
    """The recipe with its fields changed, and why it cannot be trained so: its examples can be looked at anyway."""
    try:
        return named.changed(recipe, changes), None
    except RecipeError as error:
        refused = error
    for change in changes:  # what cannot be set at all is refused here again
        named.put(recipe, change)
    objective = recipe.objective
    for name, part in (("segments", objective.segments), ("corruption", objective.corruption)):
        if part is not None:
            spec.check(part, f"{recipe.name}.objective.{name}")
    return recipe, refused


def refusal(recipe: Recipe, directory: Path, tokenizer: Tokenizer) -> InputError | None:
    """What `pretrain` would say against this sound recipe on this data, if anything."""
    try:
        text = Corpus.open(directory, "train")
        PretrainingBatches(fit_to_data(recipe, tokenizer), [(text, 1.0)], tokenizer.vocabulary()).check_first_examples()
    except InputError as error:
        return error
    return None


def chosen(options: Options, there: int) -> np.ndarray:
    """The indices asked for: the first few, or one, or a few from one on."""
    if options.index is None:
        return np.arange(min(options.count or 3, there))
    if options.index >= there:
        raise InputError("--index", f"{options.index:,}", f"this epoch has {there:,} examples", f"use 0 to {there - 1}")
    return np.arange(options.index, min(options.index + (options.count or 1), there))


def tell(
    options: Options,
    recipe: Recipe,
    tokenizer: Tokenizer,
    ragged: RaggedBatch,
    there: int,
    index: np.ndarray,
    directory: Path,
) -> None:
    console = screen()
    objective = recipe.objective
    which = f"{index[0]:,}" if len(index) == 1 else f"{index[0]:,} to {index[-1]:,}"
    rows = [
        ("examples", f"{which} of {there:,} in epoch {options.epoch} of {recipe.name} on {directory}"),
        ("segments", brief(objective.segments)),
        ("corruption", brief(objective.corruption)),
    ]
    console.print(facts(rows))
    legend(console, tokenizer, ragged=ragged, words=options.mark_words)
    for at in range(len(index)):
        console.print(f"\n{index[at]:,}", style="bold")
        for line in drawn(ragged, at, tokenizer, objective.segments, options.mark_words, console.width):
            console.print(line)


def as_json(ragged: RaggedBatch, at: int, tokenizer: Tokenizer, index: int, epoch: int) -> dict[str, Any]:
    """One example, unpadded."""
    here = slice(ragged.first[at], ragged.first[at + 1])
    sentences = ragged.sentence_starts
    row = {
        "tokens": [tokenizer.token(token) for token in ragged.tokens[here]],
        "input_ids": ragged.tokens[here].tolist(),
        "labels": ragged.labels[here].tolist(),
        "segment_ids": ragged.segment[here].tolist(),
        "word_starts": ragged.word_starts[here].tolist(),
        "sentence_starts": sentences[here].tolist() if sentences is not None else [],
        "index": index,
        "epoch": epoch,
    }
    if ragged.span is not None:
        row["spans"] = [list(each) for each in ragged.spans(at)]
    if ragged.order is not None:
        row["order"] = ragged.order[here].tolist()
    if ragged.units is not None:
        row["units"] = ragged.units[here].tolist()
    return row | {name: values[at].item() for name, values in ragged.fields.items()}
