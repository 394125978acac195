"""clozeworks evaluate"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from clozeworks.batch import Batch
from clozeworks.commands import named, pair_figures, sliding, task_figures
from clozeworks.commands.arguments import Options
from clozeworks.commands.paths import existing
from clozeworks.commands.screen import closing, columns, emit, screen
from clozeworks.commands.to_try import to_try
from clozeworks.data.shards import Corpus
from clozeworks.errors import InputError
from clozeworks.evaluate import heldout
from clozeworks.nn.lsh import LSHLayer
from clozeworks.text_encoder import TextEncoder

ENGLISH = {
    "heldout": "held-out",
    "model": "this model",
    "baseline": "word frequencies",
    "accuracy": "masked accuracy",
    "loss": "masked loss",
    "perplexity": "perplexity",
    "pair": "pair accuracy",
}
NEXT = {**ENGLISH, "accuracy": "next-token accuracy", "loss": "next-token loss"}
ORDERED = {**ENGLISH, "accuracy": "accuracy in a drawn order", "loss": "loss in a drawn order"}


def run(options: Options) -> None:
    if (options.data is None) == (options.test is None):
        given = "neither --data nor --test" if options.data is None else "both --data and --test"
        raise InputError("clozeworks evaluate", given, "one of them is needed", "for example: --data data")
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    if encoder.recipe.task is not None:
        task_figures.run(options, encoder, screen())
        return
    for name in ("report", "columns"):
        if getattr(options, name):
            needed = "it is about labelled rows, and the model has no task"
            raise InputError(f"--{name}", options.model, needed, "leave it out, or see clozeworks finetune")
    encoder = adapted(encoder, options.length, options.memory, options.rounds)
    if options.test is not None or encoder.recipe.decoder is not None:
        if options.window is not None:
            raise InputError("--window", options.window, "it slides over text of one side", "leave it out")
        pair_figures.run(options, encoder, screen(), figures_of)
        return
    directory = existing(options.data, "a prepared directory")
    console = screen()
    if options.window is not None:
        text = Corpus.open(directory, "heldout")
        check_tokenizer(encoder, text)
        figures = sliding.figures_of(
            encoder, text, options.window, options.stride, options.tokens, bar=not options.json and console.is_terminal
        )
        if options.json:
            emit({"model": options.model, "data": options.data, "split": "heldout", **figures})
        else:
            sliding.tell(console, figures, directory)
            closing(console, None, to_try(encoder.recipe, options.model, encoder.tokenizer))
        return
    for name in ("stride", "tokens"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}", getattr(options, name), "it is about a window", "give --window, too")
    if options.json:
        figures = figures_of(encoder, directory, options.seed)
        emit({"model": options.model, "data": options.data, "split": "heldout", **figures})
        return
    with console.status("reading held-out text"):
        figures = figures_of(encoder, directory, options.seed)
    ahead = "next_token" in figures
    console.print(f"{figures['count']:,} {'' if ahead else 'hidden '}tokens of the held-out text of {directory}")
    if "lanes" in figures:
        told = f"{figures['lanes']} side by side, rows of {figures['length']}, a memory of {figures['memory']}"
        console.print(f"read as one text in lanes: {told}")
    console.print()
    tell(console, figures, NEXT if ahead else ORDERED if "permuted_lm" in figures else ENGLISH)
    closing(console, None, to_try(encoder.recipe, options.model, encoder.tokenizer))


def adapted(
    encoder: TextEncoder, length: int | None = None, memory: int | None = None, rounds: int | None = None
) -> TextEncoder:
    """The model, to read examples of another length, and set to remember or to hash more or less than in training."""
    objective, stack = encoder.recipe.objective, encoder.model.encoder.stack
    if memory is not None:
        if not encoder.recipe.encoder.stack.memory:
            given, needed = f"{memory} for {encoder.recipe.name}", "it was trained without a memory"
            raise InputError("--memory", given, needed, "leave it out")
        stack.memory = memory
    if rounds is not None:
        hashing = [layer for layer in encoder.model.modules() if isinstance(layer, LSHLayer)]
        if not hashing:
            given = f"{rounds} for {encoder.recipe.name}"
            raise InputError("--rounds", given, "none of its layers is LSH attention", "leave it out")
        for layer in hashing:
            layer.rounds = rounds
    if length is not None:
        if length > encoder.longest:
            raise InputError("--length", length, f"the model has {encoder.longest} positions", "use no more")
        segments = dataclasses.replace(objective.segments, length=length)
        segments.check("--length")
        objective = dataclasses.replace(objective, segments=segments)
    return dataclasses.replace(encoder, recipe=dataclasses.replace(encoder.recipe, objective=objective))


def figures_of(encoder: TextEncoder, directory: Path, seed: int = 0) -> dict[str, Any]:
    """Held-out figures of the model, and those of always guessing by how frequent a token is in training."""
    text, training = Corpus.open(directory, "heldout"), Corpus.open(directory, "train")
    check_tokenizer(encoder, text)
    if all("teacher" in loss.reads for loss in encoder.model.specs):  # which is not here
        raise InputError(
            encoder.recipe.name, "a bare encoder", "a head that predicts is needed", "pretrain it with --from"
        )
    labels: list[np.ndarray] = []
    pairs: list[np.ndarray] = []

    def watched(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if batch.labels is not None:
                labels.append(batch.labels.numpy())
            if "pair_label" in batch.example:
                pairs.append(batch.example["pair_label"].numpy())
            yield batch

    batches = heldout.batches(text, encoder.recipe.objective, encoder.vocabulary(), seed)
    figures = heldout.measure(encoder.model, watched(batches))
    if labels:
        sides = encoder.recipe.decoder is not None
        counts = pair_figures.target_counts(training, encoder.vocabulary().size) if sides else training.unigram()
        figures |= heldout.unigram_baseline(counts, np.concatenate(labels))
    if "next_token" in figures and encoder.tokenizer is not None:
        characters = sum(len(encoder.tokenizer.decode(each.tolist())) for each in labels)
        figures["bits_per_character"] = figures["next_token"] * figures["count"] / math.log(2) / characters
    lanes = getattr(heldout.fewer_lanes(encoder.recipe.objective.segments, int(text.sentences[-1])), "lanes", None)
    if lanes is not None:
        length, memory = encoder.recipe.objective.segments.length, encoder.model.encoder.stack.memory
        figures |= {"lanes": lanes, "length": length, "memory": memory}
    if "pair_accuracy" in figures:
        share = float(np.concatenate(pairs).mean())
        figures["commoner_pair_accuracy"] = max(share, 1 - share)
    return figures


def check_tokenizer(encoder: TextEncoder, text: Corpus) -> None:
    if encoder.tokenizer is not None and encoder.tokenizer.fingerprint != text.tokenizer_fingerprint:
        given = "another tokenizer than the model has"
        todo = "prepare the text again with --tokenizer set to the model's directory"
        raise InputError(text.directory, given, "token ids must keep their meaning", todo)


def tell(console: Console, figures: dict[str, Any], words: dict[str, str] = ENGLISH) -> None:
    """The figures beside those of guessing without reading: the commonest token, the commoner kind of pair."""
    table = columns(words["heldout"], words["model"], words["baseline"], right=(words["model"], words["baseline"]))
    if "unigram_loss" in figures:
        loss = figures["unigram_loss"]
        right = next(
            figures[name] for name in ("masked_accuracy", "next_accuracy", "permuted_accuracy") if name in figures
        )
        table.add_row(words["accuracy"], f"{right:.1%}", f"{figures['unigram_accuracy']:.1%}")
        table.add_row(words["loss"], f"{math.log(figures['perplexity']):.3f}", f"{loss:.3f}")
        table.add_row(words["perplexity"], f"{figures['perplexity']:,.1f}", f"{np.exp(loss):,.1f}")
    if "bits_per_character" in figures:
        bits = figures["bits_per_character"]
        alone = bits * figures["unigram_loss"] / figures["next_token"]
        table.add_row("bits per character", f"{bits:.3f}", f"{alone:.3f}")
    if "pair_accuracy" in figures:
        table.add_row(words["pair"], f"{figures['pair_accuracy']:.1%}", f"{figures['commoner_pair_accuracy']:.1%}")
    console.print(table)
