"""clozeworks inspect spans"""

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.bias.adaptive_span import AdaptiveSpanLayer
from clozeworks.plots import charts
from clozeworks.screen.console import closing, emit, screen


def run(options: Options) -> None:
    if options.data:
        raise InputError("--data", options.data, "spans are parameters: no text is read", "leave it out")
    if options.out:
        charts.check_ending(options.out)
    names = list(dict.fromkeys(options.models))
    console = screen()
    found = {name: spans(name, named.model(name, options.parts, options.allow_pickle)) for name in names}
    if options.out:
        charts.head_dots({name: each["layers"] for name, each in found.items()}, options.out)
    if options.json:
        emit({"models": list(found.values())})
        return
    for number, each in enumerate(found.values()):
        tell(console, each, number)
    another = "" if options.out else f"clozeworks inspect spans {' '.join(options.models)} --out spans.svg"
    closing(console, options.out, *filter(None, [another]))


def spans(model: str, encoder: TextEncoder) -> dict[str, Any]:
    """z of each head of each layer; the average with the ramp, as the published code tells it."""
    layers = [part for part in encoder.model.encoder.modules() if isinstance(part, AdaptiveSpanLayer)]
    if not layers:
        todo = "inspect a model of a recipe such as adaptive_span_mini"
        raise InputError(model, encoder.recipe.name, "no span is learned in it", todo)
    average = [float(part.penalty()["average_span"]) for part in layers]
    return {
        "model": model,
        "recipe": encoder.recipe.name,
        "limit": max(part.limit for part in layers),
        "ramp": max(part.ramp for part in layers),
        "average_span": statistics.mean(average),
        "layers": [
            {"layer": at, "average_span": mean, "spans": [round(z, 2) for z in part.spans().tolist()]}
            for at, (part, mean) in enumerate(zip(layers, average, strict=True), 1)
        ],
    }


def tell(console: Console, found: dict[str, Any], number: int) -> None:
    about = (
        f"on average {found['average_span']:.0f} of {found['limit']:,} tokens, the ramp of {found['ramp']} with them"
    )
    console.print(f"{chr(10) if number else ''}{found['model']}: {about}")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("layer", "average", "longest", "spans of its heads, the longest first"):
        table.add_column(heading, justify="left" if heading.startswith("spans") else "right")
    for row in found["layers"]:
        each = sorted(row["spans"], reverse=True)
        table.add_row(
            str(row["layer"]), f"{row['average_span']:.0f}", f"{each[0]:.0f}", " ".join(f"{z:.0f}" for z in each)
        )
    console.print(table)
