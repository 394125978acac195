"""clozeworks inspect"""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clozeworks.cli import inspect_spans, named
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate import heldout
from clozeworks.evaluate.layers import Changes, measure, open_text
from clozeworks.evaluate.text import check_tokenizer
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.plots import charts
from clozeworks.screen.console import closing, emit, screen

READ = 65_536  # held-out tokens that are looked at, at most
BAR = 24  # columns of the longest bar
MEASURES = {"distance": "L2 distance", "cosine": "cosine"}


def run(options: Options) -> None:
    if options.what == "spans":
        inspect_spans.run(options)
        return
    if not options.data:
        todo = "give the directory that prepare wrote"
        raise InputError("inspect layers", "no --data", "layers are looked at while they read a text", todo)
    if options.out:
        charts.check_ending(options.out)
    directory = existing(options.data, "a prepared directory")
    text = Corpus.open(directory, "heldout")
    names = list(dict.fromkeys(options.models))
    console = screen()
    found, recipes = {}, {}
    for name in names:
        encoder = named.model(name, options.parts, options.allow_pickle)
        recipes[name] = encoder.recipe.name
        found[name] = changes(encoder, text)
    if options.out:
        lines = {label: {name: getattr(found[name], field) for name in names} for field, label in MEASURES.items()}
        charts.layer_lines(lines, options.out, "From the input of a layer to its output", "layer")
    if options.json:
        emit({"data": options.data, "models": [as_json(name, recipes[name], found[name]) for name in names]})
        return
    tell(console, found, directory)
    given = " ".join(options.models)
    another = "" if options.out else f"clozeworks inspect layers {given} --data {options.data} --out layers.svg"
    closing(console, options.out, *filter(None, [another, f"clozeworks evaluate {names[0]} --data {options.data}"]))


def changes(encoder: TextEncoder, text: Corpus) -> Changes:
    """What the layers of a model do to held-out text, in examples as it was trained on, nothing hidden."""
    check_tokenizer(encoder, text)
    objective = open_text(encoder.recipe.objective)
    batches = heldout.batches(text, objective, encoder.vocabulary(), limit_tokens=READ)
    return measure(encoder.model.encoder, batches)


def as_json(model: str, recipe: str, found: Changes) -> dict[str, Any]:
    rows = zip(found.distance, found.cosine, strict=True)
    layers = [{"layer": at, "distance": distance, "cosine": cosine} for at, (distance, cosine) in enumerate(rows, 1)]
    deviation = dict(zip(MEASURES, found.deviation, strict=True))
    return {"model": model, "recipe": recipe, "tokens": found.tokens, "layers": layers, "deviation": deviation}


def tell(console: Console, found: dict[str, Changes], directory: Path) -> None:
    longest = max(value for each in found.values() for value in each.distance)
    for number, (name, each) in enumerate(found.items()):
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
