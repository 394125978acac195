"""clozeworks inspect"""

from __future__ import annotations

import shlex
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import (
    MODEL,
    DeviceOptions,
    JsonOptions,
    PickleOptions,
    argument,
    one_of,
    option,
    refuse_given,
)
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from clozeworks.data.shards.corpus import Corpus
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
    """Look into each model, draw it where that is asked for, and print it."""
    from clozeworks.cli import named
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.plots import charts
    from clozeworks.screen.console import closing, emit, screen

    if options.what == "spans":
        refuse_given(options, ("data",), "spans are parameters: no text is read", "leave it out")
    elif not options.data:
        todo = "give the directory that prepare wrote"
        raise InputError("inspect layers", "no --data", "layers are looked at while they read a text", todo)
    if options.out:
        charts.check_ending(options.out)
    text = Corpus.open(existing(options.data, "a prepared directory"), "heldout") if options.data else None
    console, models = screen(), []
    for name in dict.fromkeys(options.models):
        encoder = named.model(name, options.parts, options.allow_pickle, options.device)
        models.append(read_spans(name, encoder) if text is None else measure_layers(name, encoder, text))
    if options.out and options.data:
        lines = {
            label: {each["model"]: [layer[name] for layer in each["layers"]] for each in models}
            for name, label in MEASURES.items()
        }
        charts.layer_lines(lines, options.out, "From the input of a layer to its output", "layer")
    elif options.out:
        charts.head_dots({each["model"]: each["layers"] for each in models}, options.out)
    if options.json:
        emit({**({"data": options.data} if options.data else {}), "models": models})
        return
    for number, each in enumerate(models):
        if number:
            console.print()
        if options.data:
            longest = max(layer["distance"] for one in models for layer in one["layers"])
            show_layers(console, each, options.data, longest)
        else:
            show_spans(console, each)
    data = ["--data", options.data] if options.data else []
    again = ["inspect", options.what, *options.models, *data, "--out", f"{options.what}.svg"]
    commands = [*([] if options.out else [again]), *([["evaluate", options.models[0], *data]] if data else [])]
    closing(console, options.out, *(shlex.join(["clozeworks", *words]) for words in commands))


def measure_layers(model: str, encoder: TextEncoder, text: Corpus) -> dict[str, Any]:
    """What the layers of a model do to held-out text, in examples as it was trained on, nothing masked."""
    from clozeworks.evaluate import heldout
    from clozeworks.evaluate.layers import measure, open_text
    from clozeworks.evaluate.text import check_tokenizer

    check_tokenizer(encoder, text)
    objective = open_text(encoder.recipe.objective)
    batches = heldout.batches(text, objective, encoder.vocabulary(), limit_tokens=READ)
    changes = measure(encoder.model.encoder, batches)
    rows = zip(changes.distance, changes.cosine, strict=True)
    return {
        "model": model,
        "recipe": encoder.recipe.name,
        "tokens": changes.tokens,
        "layers": [{"layer": at, "distance": far, "cosine": cosine} for at, (far, cosine) in enumerate(rows, 1)],
        "deviation": dict(zip(MEASURES, changes.deviation, strict=True)),
    }


def show_layers(console: Console, model: dict[str, Any], data: str, longest: float) -> None:
    """The layers of a model, with bars of which the longest is as far as any layer goes."""
    from clozeworks.screen.console import columns

    console.print(f"{model['model']}: {model['tokens']:,} tokens of the held-out text of {data}")
    table = columns("layer", MEASURES["distance"], "", MEASURES["cosine"], "", right=("layer", *MEASURES.values()))
    for row in model["layers"]:
        bars = bar(console, row["distance"] / longest if longest else 0.0), bar(console, row["cosine"])
        table.add_row(str(row["layer"]), f"{row['distance']:.2f}", bars[0], f"{row['cosine']:.3f}", bars[1])
    uneven = model["deviation"]
    table.add_row("deviation", f"{uneven['distance']:.2f}", "", f"{uneven['cosine']:.3f}", "", style="dim")
    console.print(table)


def bar(console: Console, share: float) -> str:
    """A share of BAR columns; what is below nothing has no length."""
    return ("#" if console.options.ascii_only else "█") * round(BAR * max(0.0, share))


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


def show_spans(console: Console, model: dict[str, Any]) -> None:
    """The spans of the heads of each layer."""
    from clozeworks.screen.console import columns

    average = f"on average {model['average_span']:.0f} of {model['limit']:,} tokens"
    console.print(f"{model['model']}: {average}, the ramp of {model['ramp']} with them")
    numbers = ("layer", "average", "longest")
    table = columns(*numbers, "spans of its heads, the longest first", right=numbers)
    for row in model["layers"]:
        spans = [f"{z:.0f}" for z in sorted(row["spans"], reverse=True)]
        table.add_row(str(row["layer"]), f"{row['average_span']:.0f}", spans[0], " ".join(spans))
    console.print(table)
