"""clozeworks examples"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import (
    RECIPE,
    CommandOptions,
    Idle,
    argument,
    changes,
    choice,
    integer,
    option,
    random_seed,
)
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError, RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from clozeworks.core.examples import RaggedBatch
    from clozeworks.data.batches.rows import Row
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.recipe import Recipe


@dataclass(kw_only=True)
class Options(CommandOptions):
    """Show training examples as the model will see them

    Before any training, or exactly those of a step of a run.

    clozeworks examples bert_mini --data data --count 3
    clozeworks examples roberta_mini --data data --set objective.corruption=MaskSpans
    clozeworks examples roberta_mini --data data --set "objective.segments=DocSentences(length=64)"
    clozeworks examples --run run --step 1234
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("parts",), lambda options: options.run is None, "it is about the recipe of a run", "add --run RUN"),
        Idle(("mark_words",), lambda options: options.json, "--json says where words begin anyway"),
    )
    recipe: str | None = argument("RECIPE", RECIPE, nargs="?")
    set: list[str] = changes()
    data: str | None = option("what prepare wrote", metavar="DIR")
    run: str | None = option("instead of RECIPE and --data: a run, with --step", metavar="RUN")
    step: int | None = integer("exactly what this step of the run was trained on")
    parts: str | None = option("a file with parts of your own that the run is made of", metavar="FILE.py")
    count: int | None = integer("how many examples to show", otherwise="3; 1 with --index, all with --step")
    index: int | None = integer("the first example to show", least=0, metavar="I", otherwise=0)
    seed: int | None = random_seed("random seed of segments and masks", otherwise="the recipe's train.seed")
    epoch: int = integer("the epoch: each masks other tokens", 0, least=0, metavar="E")
    split: str = choice("the part of the text", "train", "heldout", default="train")
    mark_words: bool = option("mark where words begin", False)
    json: bool = option("print machine-readable JSON only, one object a line", False)


@dataclass(frozen=True, slots=True)
class Example:
    """One example to show, with the examples it was made among."""

    ragged: RaggedBatch
    at: int  # its place among them
    index: int
    epoch: int
    of: str = ""  # the text it is from, where there are several


def run(options: Options) -> None:
    """Draw the examples of a recipe on a text, or those of a step of a run."""
    if options.run is not None or options.step is not None:
        # A run knows its recipe and its text: nothing else may be said about them.
        others = ("data", "set", "index", "seed", "epoch", "split")
        other = [*(["a recipe"] if options.recipe else []), *(f"--{name}" for name in others if name in options.given)]
        if options.run is None or options.step is None or other:
            given = f"also {other[0]}" if other else "one without the other"
            raise InputError("--run, --step", given, "a run and one of its steps are needed", "give these two alone")
        show_step(options, existing(options.run, "a run"), options.step)
    elif options.recipe is None or options.data is None:
        missing = "RECIPE" if options.recipe is None else "--data"
        todo = "or --run RUN --step N for the examples of a step of a run"
        raise InputError("clozeworks examples", f"no {missing}", "a recipe and prepared text are needed", todo)
    else:
        show_recipe(options, options.recipe, existing(options.data, "a prepared directory"))


def show_recipe(options: Options, name: str, directory: Path) -> None:
    """Some examples that a recipe makes of a text, and how to train on them, or why that would be refused."""
    from clozeworks.cli import named
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.screen.console import closing, note, screen
    from clozeworks.train.pretraining_batches import make_epoch

    recipe, refused = change_recipe(named.recipe(name), options.set)
    text, tokenizer = Corpus.open(directory, options.split), Tokenizer.load(directory)
    seed = recipe.train.seed if options.seed is None else options.seed
    epoch = make_epoch(recipe, text, tokenizer, seed, options.epoch)
    index = choose(options, len(epoch.plan))
    ragged = epoch.examples(index, sentences=True)
    examples = [Example(ragged, at, int(number), options.epoch) for at, number in enumerate(index)]
    which = f"{index[0]:,}" if len(index) == 1 else f"{index[0]:,} to {index[-1]:,}"
    about = f"{which} of {len(epoch.plan):,} in epoch {options.epoch} of {recipe.name} on {directory}"
    show(options, recipe, tokenizer, examples, about=[("examples", about)])
    if options.json:
        return
    refused = refused or refusal(recipe, directory, tokenizer)
    if refused is not None:
        screen().print()
        note(screen(), f"to look at, not to train: {refused}")
        return
    changed = " ".join(f"--set {shlex.quote(change)}" for change in options.set)
    command = f"clozeworks pretrain {name} {changed}".strip()
    closing(screen(), None, f"{command} --data {shlex.quote(str(directory))} --out run")


def show_step(options: Options, run: Path, step: int) -> None:
    """The examples of one step of a run: the same text, the same masks, in the order of its rows."""
    from clozeworks.cli import named
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.exchange import files
    from clozeworks.train import run_dir

    recipe = files.read_recipe(run / run_dir.RECIPE, named.parts(options.parts))
    if step > recipe.train.steps:
        raise InputError("--step", step, f"this run has {recipe.train.steps:,} steps", "give one of them")
    tokenizer = Tokenizer.load(run)
    rows = find_rows(run, recipe, tokenizer, step)
    about = f"{step:,} of {recipe.train.steps:,} of {run}: {len(rows):,} rows"
    examples = [each for row in rows for each in iterate_examples(row)][: options.count]
    header = [("step", about), *read_outcome(run, step)]
    show(options, recipe, tokenizer, examples, about=header, more={"step": step})


def show(
    options: Options,
    recipe: Recipe,
    tokenizer: Tokenizer,
    examples: list[Example],
    *,
    about: list[tuple[str, str]],
    more: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """The examples, drawn below what they are made by, or as JSON, each with `more`."""
    from clozeworks.screen.console import emit, facts, screen
    from clozeworks.screen.drawing import brief, drawn, legend

    if options.json:
        for one in examples:
            emit({**as_json(one, tokenizer), **more, **({"data": one.of} if one.of else {})})
        return
    console, objective = screen(), recipe.objective
    made_by = [("segments", brief(objective.segments)), ("corruption", brief(objective.corruption))]
    console.print(facts([*about, *made_by]))
    if examples:
        legend(console, tokenizer, ragged=examples[0].ragged, words=options.mark_words)
    for one in examples:
        where = f" in epoch {one.epoch} of {one.of}" if one.of else ""
        console.print(f"\n{one.index:,}{where}", style="bold", markup=False)
        for line in drawn(one.ragged, one.at, tokenizer, objective.segments, options.mark_words, console.width):
            console.print(line)


def change_recipe(recipe: Recipe, changes: list[str]) -> tuple[Recipe, RecipeError | None]:
    """The recipe with its fields changed, and why it cannot be trained so: its examples can be looked at anyway."""
    from clozeworks.cli import named
    from clozeworks.core import spec

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
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.train.pretrain import fit_to_data
    from clozeworks.train.pretraining_batches import PretrainingBatches

    try:
        text = Corpus.open(directory, "train")
        PretrainingBatches(fit_to_data(recipe, tokenizer), [(text, 1.0)], tokenizer.vocabulary()).check_first_examples()
    except InputError as error:
        return error
    return None


def choose(options: Options, there: int) -> np.ndarray:
    """The indices asked for: the first few, or one, or a few from one on."""
    import numpy as np

    if options.index is None:
        return np.arange(min(options.count or 3, there))
    if options.index >= there:
        raise InputError("--index", f"{options.index:,}", f"this epoch has {there:,} examples", f"use 0 to {there - 1}")
    return np.arange(options.index, min(options.index + (options.count or 1), there))


def as_json(example: Example, tokenizer: Tokenizer) -> dict[str, Any]:
    """One example, unpadded."""
    ragged, at = example.ragged, example.at
    here = slice(ragged.first[at], ragged.first[at + 1])
    sentences = ragged.sentence_starts
    row = {
        "tokens": [tokenizer.token(token) for token in ragged.tokens[here]],
        "input_ids": ragged.tokens[here].tolist(),
        "labels": ragged.labels[here].tolist(),
        "segment_ids": ragged.segment[here].tolist(),
        "word_starts": ragged.word_starts[here].tolist(),
        "sentence_starts": sentences[here].tolist() if sentences is not None else [],
        "index": example.index,
        "epoch": example.epoch,
    }
    if ragged.span is not None:
        row["spans"] = [list(each) for each in ragged.spans(at)]
    if ragged.order is not None:
        row["order"] = ragged.order[here].tolist()
    if ragged.units is not None:
        row["units"] = ragged.units[here].tolist()
    return row | {name: values[at].item() for name, values in ragged.fields.items()}


def find_rows(run: Path, recipe: Recipe, tokenizer: Tokenizer, step: int) -> list[Row]:
    """From the last checkpoint before the step, or from the beginning."""
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.exchange import checkpoint
    from clozeworks.train import run_dir
    from clozeworks.train.pretraining_batches import PretrainingBatches

    corpora = []
    for entry in run_dir.read(run)["data"]:
        corpus = Corpus.open(existing(entry["directory"], "the text of this run"), "train")
        if corpus.fingerprint != entry["fingerprint"]:
            given = "other shards than this run was trained on"
            raise InputError(corpus.directory, given, "the same text is needed", "prepare it as it was")
        corpora.append((corpus, entry["weight"]))
    before = checkpoint.find(run, upto=step - 1).checkpoint
    start, position = (before.step, before.state["position"]) if before else (0, None)
    return PretrainingBatches(recipe, corpora, tokenizer.vocabulary(), start, position).rows_at(step)


def iterate_examples(row: Row) -> Iterator[Example]:
    """The examples that one row of a batch holds."""
    ragged, text = row.epoch.examples(row.index, sentences=True), row.epoch.source.text
    of = str(getattr(text, "directory", "text"))
    for at, index in enumerate(row.index):
        yield Example(ragged, at, int(index), row.epoch.number, of)


def read_outcome(run: Path, step: int) -> list[tuple[str, str]]:
    """What metrics.jsonl says of the step, where it was logged."""
    from clozeworks.train import metrics_log, run_dir

    for row in metrics_log.read(run / run_dir.METRICS):
        if row["step"] == step and "split" not in row:
            numbers = [f"{name.replace('_', ' ')} {row.get(name)}" for name in ("loss", "grad_norm")]
            return [("outcome", ", ".join([*numbers, *([row["reason"]] if row.get("reason") else [])]))]
    return []
