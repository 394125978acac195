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
    "pair": "pair accuracy",
}
NEXT = {**ENGLISH, "accuracy": "next-token accuracy", "loss": "next-token loss"}
ORDERED = {**ENGLISH, "accuracy": "accuracy in a drawn order", "loss": "loss in a drawn order"}


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
