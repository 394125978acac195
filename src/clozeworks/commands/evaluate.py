"""clozeworks evaluate"""

import math
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from clozeworks.batch import Batch
from clozeworks.commands import named
from clozeworks.commands.arguments import Options
from clozeworks.commands.paths import existing
from clozeworks.commands.screen import closing, columns, emit, screen
from clozeworks.data.shards import Corpus
from clozeworks.errors import InputError
from clozeworks.evaluate import heldout
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
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    directory = existing(options.data, "a prepared directory")
    console = screen()
    if options.json:
        figures = figures_of(encoder, directory, options.seed)
        emit({"model": options.model, "data": options.data, "split": "heldout", **figures})
        return
    with console.status("reading held-out text"):
        figures = figures_of(encoder, directory, options.seed)
    ahead = "next_token" in figures
    console.print(f"{figures['count']:,} {'' if ahead else 'hidden '}tokens of the held-out text of {directory}")
    console.print()
    tell(console, figures, NEXT if ahead else ORDERED if "permuted_lm" in figures else ENGLISH)
    closing(console, None, to_try(encoder, options.model))


def to_try(encoder: TextEncoder, model: str) -> str:
    """The command that shows what a model has learnt."""
    if encoder.kind == "causal":
        return f"clozeworks generate {shlex.quote(model)}"
    mask = encoder.tokenizer.names["mask"] if encoder.tokenizer else "[MASK]"
    return f'clozeworks fill-mask {shlex.quote(model)} "... {mask} ..."'


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
        figures |= heldout.unigram_baseline(training.unigram(), np.concatenate(labels))
    if "next_token" in figures and encoder.tokenizer is not None:
        characters = sum(len(encoder.tokenizer.decode(each.tolist())) for each in labels)
        figures["bits_per_character"] = figures["next_token"] * figures["count"] / math.log(2) / characters
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
