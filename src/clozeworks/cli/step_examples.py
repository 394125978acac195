"""The examples of one step of a run: the same text, the same masks, in the order of its rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.core.errors import InputError
from clozeworks.core.examples import RaggedBatch
from clozeworks.data.batches.rows import Row
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint, files
from clozeworks.recipe import Recipe
from clozeworks.screen.console import emit, facts, screen
from clozeworks.screen.drawing import brief, drawn, legend
from clozeworks.train import metrics_log, run_dir
from clozeworks.train.pretraining_batches import PretrainingBatches


def show(options: Options, as_json: Any) -> None:
    run = named.existing(options.run, "a run")
    recipe = files.read_recipe(run / run_dir.RECIPE, named.parts(options.parts))
    if options.step > recipe.train.steps:
        raise InputError("--step", options.step, f"this run has {recipe.train.steps:,} steps", "give one of them")
    tokenizer = Tokenizer.load(run)
    rows = rows_of(run, recipe, tokenizer, options.step)
    found = [each for row in rows for each in examples_of(row)]
    found = found[: options.count or len(found)]
    if options.json:
        for row, ragged, at in found:
            shown = as_json(ragged, at, tokenizer, int(row.index[at]), row.epoch.number)
            emit({**shown, "step": options.step, "data": place(row)})
        return
    console = screen()
    told = [
        ("step", f"{options.step:,} of {recipe.train.steps:,} of {run}: {len(rows):,} rows"),
        *outcome(run, options.step),
        ("segments", brief(recipe.objective.segments)),
        ("corruption", brief(recipe.objective.corruption)),
    ]
    console.print(facts(told))
    for number, (row, ragged, at) in enumerate(found):
        if not number:
            legend(console, tokenizer, ragged=ragged, words=options.mark_words)
        console.print(f"\n{row.index[at]:,} in epoch {row.epoch.number} of {place(row)}", style="bold", markup=False)
        for line in drawn(ragged, at, tokenizer, recipe.objective.segments, options.mark_words, console.width):
            console.print(line)


def rows_of(run: Path, recipe: Recipe, tokenizer: Tokenizer, step: int) -> list[Row]:
    """Found from the last checkpoint before the step, or from the beginning."""
    corpora = []
    for entry in run_dir.read(run)["data"]:
        corpus = Corpus.open(named.existing(entry["directory"], "the text of this run"), "train")
        if corpus.fingerprint != entry["fingerprint"]:
            given = "other shards than this run was trained on"
            raise InputError(corpus.directory, given, "the same text is needed", "prepare it as it was")
        corpora.append((corpus, entry["weight"]))
    before = checkpoint.find(run, upto=step - 1).checkpoint
    start, position = (before.step, before.state["position"]) if before else (0, None)
    return PretrainingBatches(recipe, corpora, tokenizer.vocabulary(), start, position).rows_at(step)


def examples_of(row: Row) -> Iterator[tuple[Row, RaggedBatch, int]]:
    ragged = row.epoch.examples(row.index, sentences=True)
    for at in range(len(row.index)):
        yield row, ragged, at


def place(row: Row) -> str:
    text = row.epoch.source.text
    return str(text.directory) if isinstance(text, Corpus) else "text"


def outcome(run: Path, step: int) -> list[tuple[str, str]]:
    """What metrics.jsonl says of the step, where it was logged."""
    for row in metrics_log.read(run / run_dir.METRICS):
        if row["step"] == step and "split" not in row:
            numbers = [f"{name.replace('_', ' ')} {row.get(name)}" for name in ("loss", "grad_norm")]
            return [("outcome", ", ".join([*numbers, *([row["reason"]] if row.get("reason") else [])]))]
    return []
