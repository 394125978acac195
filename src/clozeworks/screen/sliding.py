"""Metrics by a sliding window as a table, beside those with a memory."""

from pathlib import Path
from typing import Any

from rich.console import Console

from clozeworks.screen.console import columns


def show_sliding(console: Console, metrics: dict[str, Any], directory: Path) -> None:
    """A column for the window and, where it was measured, one for the memory."""
    window, memory = metrics["window"], metrics.get("memory")
    console.print(f"{metrics['tokens']:,} tokens of the held-out text of {directory}, read as one text")
    console.print()
    heads, ways = [f"window of {window['length']}, by {window['stride']}"], [window]
    if memory is not None:
        heads.append(f"memory of {memory['length']}, {memory['segment']} at once")
        ways.append(memory)
    table = columns("held-out", *heads, right=heads)
    table.add_row("next-token loss", *(f"{way['loss']:.3f}" for way in ways))
    table.add_row("perplexity", *(f"{way['perplexity']:,.1f}" for way in ways))
    if "bits_per_character" in window:
        table.add_row("bits per character", *(f"{way['bits_per_character']:.3f}" for way in ways))
    table.add_row("milliseconds a token", *(f"{1e3 * way['seconds_per_token']:.3g}" for way in ways))
    console.print(table)
    if memory is not None:
        console.print()
        console.print(f"with the memory a token takes 1/{metrics['times_faster']:,.0f} of the time by the window")
