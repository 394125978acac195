"""What `clozeworks prepare` did to a text."""

from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.data.shards.prepare import Prepared
from clozeworks.screen.console import facts, note


def show_prepared(console: Console, done: Prepared) -> None:
    """The summary screen."""
    manifest = done.manifest
    rows: list[tuple[str, object]] = [(name, _counted(counted)) for name, counted in manifest["splits"].items()]
    vocabulary = manifest["tokenizer"]["size"]
    words, tokens, strange = (
        sum(counted[name] for counted in manifest["splits"].values()) for name in ("words", "tokens", "unknown")
    )
    pieces, unknown = tokens / max(words, 1), strange / max(tokens, 1)
    rows.append(("tokenizer", f"{vocabulary:,} pieces, {pieces:.2f} tokens a word, {unknown:.3%} of them unknown"))
    if manifest["unknowns"]:
        rows.append(("unknown", ", ".join(f"{text} {count:,}" for text, count in manifest["unknowns"])))
    rows.append(("language", f"{manifest['settings']['lang']}, words {_words(manifest)}"))
    dropped = {name: count for name, count in {**manifest["dropped"], **manifest["unicode"]}.items() if count}
    counts = [f"{name.replace('_', ' ')} {count:,}" for name, count in dropped.items()]
    rows.append(("left out", ", ".join(counts) or "nothing"))
    console.print(facts(rows))
    console.print()
    console.print(histogram(manifest["lengths"]["documents"]))
    for text in done.notes:
        note(console, text)


def _words(manifest: dict[str, Any]) -> str:
    sentences = sum(counted["sentences"] for counted in manifest["splits"].values())
    if manifest["words"]["given"] >= sentences:
        return "as given"
    segmenter = manifest["settings"]["segmenter"]
    return "by the tokenizer's own borders" if segmenter == "none" else f"by {segmenter}"


def histogram(bins: list[list[int]]) -> Text:
    """Documents by their length in tokens."""
    text = Text("tokens a document", style="bold")
    total, most = sum(count for *_, count in bins), max(count for *_, count in bins)
    width = max(len(f"{high:,}") for _, high, _ in bins)
    for low, high, count in bins:
        bar = "█" * max(1, round(32 * count / most))
        text.append(f"\n{low:>{width},} to {high:>{width},}  ", "default")
        text.append(bar, "cyan")
        text.append(f" {count:,} ({count / total:.0%})", "default")
    return text


def _counted(counted: dict[str, int]) -> str:
    names = ("documents", "sentences", "words", "tokens")
    return ", ".join(f"{counted[name]:,} {name if counted[name] != 1 else name[:-1]}" for name in names)
