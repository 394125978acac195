"""clozeworks evaluate --window: a text told by a sliding window, and with a memory where the model has one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate import sliding
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.screen.console import columns, screen


def figures_of(
    encoder: TextEncoder, text: Corpus, window: int, stride: int | None, most: int | None, bar: bool = False
) -> dict[str, Any]:
    """Held-out text read both ways; `bar` shows how far."""
    if encoder.kind != "causal":
        needed = "a window slides before the token that is to be told"
        raise InputError("--window", f"{encoder.recipe.name} reads both ways", needed, "leave it out")
    if window > encoder.longest:
        raise InputError("--window", window, f"the model has {encoder.longest} positions", "use no more")
    if stride is not None and stride > window:
        raise InputError("--stride", stride, f"1 to {window} are within the window", "use a smaller one")
    tokens = sliding.text_of(text, encoder.vocabulary(), most)
    model, segment = encoder.model, encoder.recipe.objective.segments.length
    ways = {"window": lambda: sliding.by_window(model, tokens, window, stride or 1)}
    if model.encoder.stack.memory:
        ways["memory"] = lambda: sliding.by_memory(model, tokens, segment)
    characters = len(encoder.tokenizer.decode(tokens[1:].tolist())) if encoder.tokenizer else 0
    found: dict[str, Any] = {"tokens": len(tokens)}
    with Progress(console=screen(stderr=True), disable=not bar, transient=True) as progress:
        for name, pieces in ways.items():
            figures = sliding.measure(pieces(), _watch(progress, name, len(tokens) - 1))
            found[name] = {
                "loss": figures.loss,
                "perplexity": figures.perplexity,
                **({"bits_per_character": figures.bits_per_character(characters)} if characters else {}),
                "count": figures.count,
                "seconds_per_token": figures.seconds_per_token,
            }
    found["window"] |= {"length": window, "stride": stride or 1}
    if "memory" in found:
        found["memory"] |= {"length": model.encoder.stack.memory, "segment": segment}
        found["times_faster"] = found["window"]["seconds_per_token"] / found["memory"]["seconds_per_token"]
    return found


def _watch(progress: Progress, name: str, total: int) -> Callable[[int], None]:
    task = progress.add_task(name, total=total)
    return lambda count: progress.update(task, completed=count)


def tell(console: Console, figures: dict[str, Any], directory: Path) -> None:
    window, memory = figures["window"], figures.get("memory")
    console.print(f"{figures['tokens']:,} tokens of the held-out text of {directory}, read as one text")
    console.print()
    heads = [f"window of {window['length']}, by {window['stride']}"]
    if memory is not None:
        heads.append(f"memory of {memory['length']}, {memory['segment']} at once")
    ways = [window, *([memory] if memory is not None else [])]
    table = columns("held-out", *heads, right=heads)
    table.add_row("next-token loss", *(f"{way['loss']:.3f}" for way in ways))
    table.add_row("perplexity", *(f"{way['perplexity']:,.1f}" for way in ways))
    if "bits_per_character" in window:
        table.add_row("bits per character", *(f"{way['bits_per_character']:.3f}" for way in ways))
    table.add_row("milliseconds a token", *(f"{1e3 * way['seconds_per_token']:.3g}" for way in ways))
    console.print(table)
    if memory is not None:
        console.print()
        console.print(f"with the memory a token takes 1/{figures['times_faster']:,.0f} of the time by the window")
