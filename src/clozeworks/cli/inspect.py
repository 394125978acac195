"""clozeworks inspect"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import MODEL, DeviceOptions, JsonOptions, PickleOptions, argument, one_of, option
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.evaluate.layers import Changes
    from clozeworks.inference.text_encoder import TextEncoder

READ = 65_536  # held-out tokens that are looked at, at most
BAR = 24  # columns of the longest bar
MEASURES = {"distance": "L2 distance", "cosine": "cosine"}


@dataclass(kw_only=True)
class Options(JsonOptions, DeviceOptions, PickleOptions):
    """Inspect what the layers and heads of models do

    layers: how far each layer moves a token, and by which angle: the mean L2 distance and cosine between its input and
    its output. spans: how far back each head has learned to attend (adaptive attention span).

    clozeworks inspect layers run --data data
    clozeworks inspect layers run-a run-b --data data --out layers.svg
    clozeworks inspect spans run --out spans.svg
    """

    what: str = argument("layers|spans", "what to look at", type=one_of("layers", "spans"))
    models: list[str] = argument("MODEL", f"{MODEL}; several are compared", nargs="+")
    data: str | None = option("for layers: what prepare wrote, with the models' tokenizer", metavar="DIR")
    out: str | None = option("file to draw it to, too: .svg, .png or .pdf", metavar="FILE")
    parts: str | None = option("a file with parts of your own that a model is made of", metavar="FILE.py")


def run(options: Options) -> None:
    from clozeworks.plots import charts

    if options.out and (options.data or options.what == "spans"):
        charts.check_ending(options.out)
    if options.what == "spans":
        inspect_spans(options)
    else:
        inspect_layers(options)


def inspect_layers(options: Options) -> None:
    """What each layer does to held-out text."""
    from clozeworks.cli import named
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.plots import charts
    from clozeworks.screen.console import closing, emit, screen

    if not options.data:
        todo = "give the directory that prepare wrote"
        raise InputError("inspect layers", "no --data", "layers are looked at while they read a text", todo)
    directory = existing(options.data, "a prepared directory")
    text = Corpus.open(directory, "heldout")
    names = list(dict.fromkeys(options.models))
    console = screen()
    measured, recipes = {}, {}
    for name in names:
        encoder = named.model(name, options.parts, options.allow_pickle, options.device)
        recipes[name] = encoder.recipe.name
        measured[name] = measure_layers(encoder, text)
    if options.out:
        lines = {label: {name: getattr(measured[name], field) for name in names} for field, label in MEASURES.items()}
        charts.layer_lines(lines, options.out, "From the input of a layer to its output", "layer")
    if options.json:
        emit({"data": options.data, "models": [as_json(name, recipes[name], measured[name]) for name in names]})
        return
    show_layers(console, measured, directory)
    given = " ".join(options.models)
    another = "" if options.out else f"clozeworks inspect layers {given} --data {options.data} --out layers.svg"
    closing(console, options.out, *filter(None, [another, f"clozeworks evaluate {names[0]} --data {options.data}"]))


def measure_layers(encoder: TextEncoder, text: Corpus) -> Changes:
    """What the layers of a model do to held-out text, in examples as it was trained on, nothing masked."""
    from clozeworks.evaluate import heldout
    from clozeworks.evaluate.layers import measure, open_text
    from clozeworks.evaluate.text import check_tokenizer

    check_tokenizer(encoder, text)
    objective = open_text(encoder.recipe.objective)
    batches = heldout.batches(text, objective, encoder.vocabulary(), limit_tokens=READ)
    return measure(encoder.model.encoder, batches)


def as_json(model: str, recipe: str, changes: Changes) -> dict[str, Any]:
    rows = zip(changes.distance, changes.cosine, strict=True)
    layers = [{"layer": at, "distance": distance, "cosine": cosine} for at, (distance, cosine) in enumerate(rows, 1)]
    deviation = dict(zip(MEASURES, changes.deviation, strict=True))
    return {"model": model, "recipe": recipe, "tokens": changes.tokens, "layers": layers, "deviation": deviation}


def show_layers(console: Console, measured: dict[str, Changes], directory: Path) -> None:
    from rich.table import Table

    longest = max(value for each in measured.values() for value in each.distance)
    for number, (name, each) in enumerate(measured.items()):
        console.print(f"{chr(10) if number else ''}{name}: {each.tokens:,} tokens of the held-out text of {directory}")
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for heading in ("layer", *MEASURES.values()):
            table.add_column(heading, justify="right")
            if heading != "layer":
                table.add_column("", no_wrap=True)
        for layer, (distance, cosine) in enumerate(zip(each.distance, each.cosine, strict=True), 1):
            bars = bar(console, distance / longest if longest else 0.0), bar(console, cosine)
            table.add_row(str(layer), f"{distance:.2f}", bars[0], f"{cosine:.3f}", bars[1])
        uneven = each.deviation
        table.add_row("deviation", f"{uneven[0]:.2f}", "", f"{uneven[1]:.3f}", "", style="dim")
        console.print(table)


def bar(console: Console, share: float) -> str:
    """A share of BAR columns; what is below nothing has no length."""
    return ("#" if console.options.ascii_only else "█") * round(BAR * max(0.0, share))


def inspect_spans(options: Options) -> None:
    """How far back each head has learned to attend."""
    from clozeworks.cli import named
    from clozeworks.plots import charts
    from clozeworks.screen.console import closing, emit, screen

    if options.data:
        raise InputError("--data", options.data, "spans are parameters: no text is read", "leave it out")
    names = list(dict.fromkeys(options.models))
    console = screen()
    spans = {name: read_spans(name, named.model(name, options.parts, options.allow_pickle)) for name in names}
    if options.out:
        charts.head_dots({name: each["layers"] for name, each in spans.items()}, options.out)
    if options.json:
        emit({"models": list(spans.values())})
        return
    for number, each in enumerate(spans.values()):
        show_spans(console, each, number)
    another = "" if options.out else f"clozeworks inspect spans {' '.join(options.models)} --out spans.svg"
    closing(console, options.out, *filter(None, [another]))


def read_spans(model: str, encoder: TextEncoder) -> dict[str, Any]:
    """z of each head of each layer; the average with the ramp, as the published code has it."""
    from clozeworks.nn.bias.adaptive_span import AdaptiveSpanLayer

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


def show_spans(console: Console, spans: dict[str, Any], number: int) -> None:
    from rich.table import Table

    about = (
        f"on average {spans['average_span']:.0f} of {spans['limit']:,} tokens, the ramp of {spans['ramp']} with them"
    )
    console.print(f"{chr(10) if number else ''}{spans['model']}: {about}")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("layer", "average", "longest", "spans of its heads, the longest first"):
        table.add_column(heading, justify="left" if heading.startswith("spans") else "right")
    for row in spans["layers"]:
        each = sorted(row["spans"], reverse=True)
        table.add_row(
            str(row["layer"]), f"{row['average_span']:.0f}", f"{each[0]:.0f}", " ".join(f"{z:.0f}" for z in each)
        )
    console.print(table)
