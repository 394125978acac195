"""Held-out metrics as a table."""

import math
from typing import Any

import numpy as np
from rich.console import Console

from clozeworks.screen.console import columns

ENGLISH = {
    "heldout": "held-out",
    "model": "this model",
    "baseline": "word frequencies",
    "accuracy": "masked accuracy",
    "loss": "masked loss",
    "perplexity": "perplexity",
    "bits": "bits per character",
    "pair": "pair accuracy",
}
NEXT = {**ENGLISH, "accuracy": "next-token accuracy", "loss": "next-token loss"}
ORDERED = {**ENGLISH, "accuracy": "accuracy in a drawn order", "loss": "loss in a drawn order"}


def show_heldout(console: Console, metrics: dict[str, Any], words: dict[str, str] = ENGLISH) -> None:
    """The metrics beside those of guessing without reading: the most frequent token and kind of pair."""
    table = columns(words["heldout"], words["model"], words["baseline"], right=(words["model"], words["baseline"]))
    if "unigram_loss" in metrics:
        loss = metrics["unigram_loss"]
        names = ("masked_accuracy", "next_accuracy", "permuted_accuracy")
        right = next(metrics[name] for name in names if name in metrics)
        table.add_row(words["accuracy"], f"{right:.1%}", f"{metrics['unigram_accuracy']:.1%}")
        table.add_row(words["loss"], f"{math.log(metrics['perplexity']):.3f}", f"{loss:.3f}")
        table.add_row(words["perplexity"], f"{metrics['perplexity']:,.1f}", f"{np.exp(loss):,.1f}")
    if "bits_per_character" in metrics:
        bits = metrics["bits_per_character"]
        alone = bits * metrics["unigram_loss"] / math.log(metrics["perplexity"])
        table.add_row(words["bits"], f"{bits:.3f}", f"{alone:.3f}")
    if "pair_accuracy" in metrics:
        table.add_row(words["pair"], f"{metrics['pair_accuracy']:.1%}", f"{metrics['commoner_pair_accuracy']:.1%}")
    console.print(table)
