"""Two models beside one another."""

from rich.console import Console
from rich.text import Text

from clozeworks.evaluate.against import Comparison
from clozeworks.screen.console import columns


def show_comparison(console: Console, result: Comparison, ours: str, theirs: str) -> None:
    """A line a metric, with the difference and its interval, and what the interval says."""
    names = ("model", "against", "difference")
    table = columns("metric", *names, "95 % paired interval", "", right=names)
    for name, difference in result.differences.items():
        values = f"{result.ours[name]:.4f}", f"{result.theirs[name]:.4f}", f"{difference.value:+.4f}"
        bounds = f"{difference.low:+.4f} to {difference.high:+.4f}"
        table.add_row(name.replace("_", " "), *values, bounds, "" if difference.significant else "may be chance")
    console.print(table)
    console.print()
    console.print(Text(f"model    {ours}\nagainst  {theirs}"), soft_wrap=True)
    if result.p is not None:
        right = (
            f"right in {result.only_ours:,} rows where the other is not, wrong in {result.only_theirs:,} where it is"
        )
        console.print(f"{right} (McNemar's exact test: p = {result.p:.3g})")


def as_json(result: Comparison) -> dict[str, object]:
    """What --json prints of it: the first model's metrics by their usual names, the other's beside them."""
    differences = {name: each._asdict() for name, each in result.differences.items()}
    right = {"only_model": result.only_ours, "only_against": result.only_theirs, "p": result.p}
    return {
        **result.ours,
        **result.facts,
        "examples": result.examples,
        "against_metrics": result.theirs,
        "differences": differences,
        **({} if result.p is None else {"right": right}),
    }
