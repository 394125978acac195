"""Metrics of a model that translates, and what it wrote."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text as Line

from clozeworks.inference.translate import Translation
from clozeworks.screen.console import columns, facts

SHOWN = 3


def show_translations(
    console: Console, metrics: dict[str, Any], translations: Sequence[Translation], references: Sequence[str]
) -> None:
    """The metrics as a table, and a few translations beside their references."""
    table = columns("held-out", "this model", "word frequencies", right=("this model", "word frequencies"))
    alone = "unigram_loss" in metrics
    rows = [
        ("next-token accuracy", f"{metrics['accuracy']:.1%}", f"{metrics['unigram_accuracy']:.1%}" if alone else ""),
        ("loss", f"{np.log(metrics['perplexity']):.3f}", f"{metrics['unigram_loss']:.3f}" if alone else ""),
        ("perplexity", f"{metrics['perplexity']:,.1f}", f"{np.exp(metrics['unigram_loss']):,.1f}" if alone else ""),
        ("BLEU", f"{metrics['bleu']:.1f}", ""),
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"\n{metrics['translated']:,} pairs, {metrics['bleu_signature']}", markup=False, soft_wrap=True)
    for one, reference in zip(translations[:SHOWN], references, strict=False):
        console.print()
        sides = [("source", one.source), ("written", one.text), ("reference", reference)]
        console.print(facts([(name, Line(text)) for name, text in sides]))
