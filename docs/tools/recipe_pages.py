"""A page for every named recipe, and the page of their tree: `python -m docs.tools.recipe_pages docs`.

Everything on a page follows from the recipe's function and from docs/recipes/measured.json; a test holds the pages so.
"""

import copy
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from clozeworks.cli.diff import shown
from clozeworks.cli.recipes import changes, family, summary
from clozeworks.core import atomic_io, spec
from clozeworks.nn.stack import Share
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe, assemble, count_parameters
from clozeworks.recipes import named
from docs.tools.laptop import Laptop, laptop_of

ROOT = "bert_base"  # the recipe that every other is held against
MEASURED = "recipes/measured.json"
INDEX = """\
# Recipes

Each function returns a fresh recipe; edit its fields, or pass `--set path=value` to a command. A recipe calls another
and changes a few lines of it: the tree below says which, and each name leads to a page with the whole difference, the
parameters, and the commands to train it.

```bash
clozeworks recipes --tree
clozeworks diff bert_base roberta_base
```

## The tree

"""
SOURCE = """
## The functions

Open *Source code* under a name to read what the paper changed, with its section on each line.

::: clozeworks.recipes
    options:
      show_if_no_docstring: true
"""


def pages(measured: dict[str, Any]) -> dict[str, str]:
    """Every page by its path below docs/."""
    made = {name: function() for name, function in named().items()}
    kin = family()
    written = {f"recipes/{name}.md": page(made[name], made, kin, measured) for name in made}
    index = [*branches(made, kin), "", *_side_by_side(measured)]
    return {"recipes.md": INDEX + "\n".join(index) + SOURCE, **written}


def branches(made: dict[str, Recipe], kin: dict[str, str | None], above: str | None = None, deep: int = 0) -> list[str]:
    """The recipes below one, as nested items."""
    lines = []
    for name in (each for each, parent in kin.items() if parent == above):
        size = f"{count_parameters(made[name]) / 1e6:,.1f} million parameters"
        text = f"- [{name}](recipes/{name}.md), {size}"
        if above is not None:
            text += ": " + ", ".join(map(_code, summary(changes(made[above], made[name]))))
        lines += textwrap.wrap(
            text, 120, initial_indent="    " * deep, subsequent_indent="    " * deep + "  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += branches(made, kin, name, deep + 1)
    return lines


def page(recipe: Recipe, made: dict[str, Recipe], kin: dict[str, str | None], measured: dict[str, Any]) -> str:
    laptop = laptop_of(recipe.name, made, kin)
    parts = (
        _opening(recipe, kin),
        _changes(recipe, made, kin),
        _parameters(recipe),
        _training(recipe),
        _laptop(recipe, laptop),
        _expected(laptop, measured),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _opening(recipe: Recipe, kin: dict[str, str | None]) -> Iterator[str]:
    function = named()[recipe.name]
    about = inspect.getdoc(function) or inspect.getdoc(inspect.getmodule(function)) or ""
    yield from [f"# {recipe.name}", "", *about.split("\n"), ""]
    line, at = [f"**{recipe.name}**"], kin[recipe.name]
    while at is not None:
        line, at = [f"[{at}]({at}.md)", *line], kin[at]
    children = [f"[{name}]({name}.md)" for name, parent in kin.items() if parent == recipe.name]
    yield from _paragraph(
        f"In [the tree](../recipes.md#the-tree): {' → '.join(line)}"
        + (f". Made from it: {', '.join(children)}." if children else ".")
    )


def _changes(recipe: Recipe, made: dict[str, Recipe], kin: dict[str, str | None]) -> Iterator[str]:
    parent = kin[recipe.name]
    if parent is None:
        return
    yield from ["## What it changes", ""]
    for other in dict.fromkeys((parent, ROOT)):
        if other == recipe.name:
            continue
        yield from _paragraph(f"Of {_linked(other)} (`clozeworks diff {other} {recipe.name}`):")
        differences = changes(made[other], recipe)
        rows = [(_code(path), _code(shown(old)), _code(shown(new))) for path, (old, new) in differences.items()]
        yield from _table(("field", other, recipe.name), rows)


def _parameters(recipe: Recipe) -> Iterator[str]:
    yield from ["## Parameters", ""]
    rows = [(name, what, f"{count:,}") for name, what, count in sizes(recipe)]
    yield from _table(("part", "", "parameters"), rows, numbers=(2,))
    share, depth = recipe.encoder.stack.share, recipe.encoder.stack.depth
    if share != Share():
        alone = copy.deepcopy(recipe)
        alone.encoder.stack.share = Share()
        names = {"attention": "for attention", "ffn": "for the feed-forward part"}
        sets = [f"{_sets(getattr(share, name) or depth)} {each}" for name, each in names.items()]
        sharing = f"share {sets[0].replace(' for', ' of weights for')} and {sets[1]}"
        if share.attention is None and share.ffn is None:
            sharing = f"share {_sets(share.bias or depth)} of the vectors that belong to no token or distance"
        yield from _paragraph(
            f"The {depth} layers {sharing}, each counted once; with their own it would be {count_parameters(alone):,}."
        )


def _sets(count: int) -> str:
    return "one set" if count == 1 else f"{count} sets"


def sizes(recipe: Recipe) -> list[tuple[str, str, int]]:
    """Part, what it is, and its parameters, each shared tensor once; nothing is allocated."""
    with torch.device("meta"):
        model = assemble(recipe)
    counts = {name: each.numel() for name, each in model.named_parameters() if each.is_floating_point()}
    encoder, rows = recipe.encoder, []

    def add(name: str, what: str, *begins: str) -> None:
        if count := sum(count for path, count in counts.items() if path.startswith(begins)):
            rows.append((name, what, count))

    tables = encoder.embed.width or encoder.width
    add("embedding", f"{encoder.vocab:,} tokens, width {tables}", "encoder.embed.")
    for side, part in (("encoder", encoder), ("decoder", recipe.decoder)):
        if part is None:
            continue
        ways = ("", "back.") if part.stack.directions == 2 else ("",)
        begins = [f"{side}.stack.{way}blocks.{layer}." for way in ways for layer in range(part.stack.depth)]
        inside = lambda *names, begins=begins: [begin + f"{name}." for begin in begins for name in names]  # noqa: E731
        block, whose = part.stack.block_at(0), "" if side == "encoder" else "decoder's "
        alike = not isinstance(part.stack.block, tuple)
        if whose:
            add(f"{whose}embedding", "", "decoder.embed.")
        attends = any(hasattr(mixer, "heads") for _, mixer in spec.walk(block.mixer))
        mixers = "mixers" if not alike else "attention" if attends else "mixer"
        add(whose + mixers, _code(shown(block.mixer)) if alike else "", *inside("mixer"))
        add("cross-attention", _code(shown(block.cross)) if alike else "", *inside("cross"))
        add(f"{whose}feed-forward", _code(shown(block.ffn)) if alike else "", *inside("ffn"))
        add(f"{whose}norms", "", *inside("mixer_norm", "cross_norm", "ffn_norm"), f"{side}.stack.norm.")
    add("second stream", "the vector it begins as", "encoder.stack.blank")
    add("pooler", _code(shown(encoder.pooler)), "encoder.pooler.")
    for loss in recipe.objective.losses:
        add(f"head of {loss.name}", _code(shown(loss)), f"heads.{loss.name}.")
    listed, whole = sum(count for *_, count in rows), sum(counts.values())
    if listed < whole:
        rows.append(("other", "", whole - listed))
    without = count_parameters(recipe, heads=False)
    published = "the published encoder" if recipe.decoder is None else "encoder and decoder alone"
    return [*rows, ("**all**", f"as pretrained; {without:,} as {published}", whole)]


def _training(recipe: Recipe) -> Iterator[str]:
    yield from ["## Training", ""]
    objective = recipe.objective
    yield from _table(
        ("", ""),
        [
            ("examples", _code(shown(objective.segments))),
            ("hidden", _code(shown(objective.corruption))),
            ("learns", ", ".join(_code(shown(loss)) for loss in objective.losses)),
            *schedule(recipe.train, recipe.longest()),
        ],
    )


def schedule(train: Train, longest: int) -> list[tuple[str, str]]:
    """The settings of a training in words."""
    length = train.phases[-1].length if train.phases else longest
    rows = [
        ("steps", f"{train.steps:,}"),
        ("batch", f"{train.batch_tokens:,} tokens, {train.batch_tokens // length:,} rows of {length}"),
    ]
    if train.phases:
        phases = (f"{phase.share:.0%} of the steps with rows of {phase.length}" for phase in train.phases)
        rows.append(("lengths", ", then ".join(phases)))
    warmup = f"{train.warmup:.0%} of the steps" if train.warmup < 1 else f"{train.warmup:,.0f} steps"
    rows.append(("learning rate", f"{train.learning_rate:g}, after a warm-up over {warmup}"))
    rows.append(("schedule", _code(shown(train.schedule))))
    inside = ", ".join(f"{name} {shown(value)}" for name, value in spec.children(train.optimizer))
    rows.append(("optimizer", f"`{type(train.optimizer).__name__}`: {inside}"))
    rows.append(("gradient", f"clipped to a norm of {train.clip:g}" if train.clip else "not clipped"))
    return rows


def _laptop(recipe: Recipe, laptop: Laptop) -> Iterator[str]:
    yield from ["## On a laptop", ""]
    this = "This recipe is" if laptop.name == recipe.name else f"{_linked(laptop.name)} is the same idea,"
    time = "`pretrain --dry-run` says how long it takes, and `--set train.steps=1000` makes it short."
    yield from _paragraph(f"{this} small enough for two cores: {time} {laptop.needs}".strip())
    yield from ["```text", *laptop.commands, "```", ""]


def _side_by_side(measured: dict[str, Any]) -> Iterator[str]:
    """What every measured recipe reached, a table a language."""
    languages = sorted({language for figures in measured.values() for language in figures})
    if not languages:
        return
    yield from ["## Side by side", ""]
    yield from _paragraph(
        "The small recipes on the same text (`examples/family.py`; each page has the command). "
        "Accuracy is that of the tokens a recipe hides by its own rule, or of the next token: a whole "
        "word or a span is harder to guess than a piece of a word, so a higher figure is no better model; held "
        "against the baseline it tells that the recipe learns. Minutes are the processor's."
    )
    for language in languages:
        rows = []
        for name, figures in measured.items():
            if language in figures:
                each = figures[language]
                numbers = (f"{each[key]:,}" for key in ("parameters", "steps", "tokens"))
                shares = (f"{each[key]:.1%}" for key in ("accuracy", "unigram"))
                rows.append((f"[{name}](recipes/{name}.md)", *numbers, f"{each['minutes']:.1f}", *shares))
        headings = (f"recipe ({language})", "parameters", "steps", "tokens", "minutes", "accuracy", "baseline")
        yield from _table(headings, rows, numbers=range(1, 7))


def _expected(laptop: Laptop, measured: dict[str, Any]) -> Iterator[str]:
    yield from ["## What to expect", ""]
    values = measured.get(laptop.name, {})
    if not values:
        yield from _paragraph(f"No run of `{laptop.name}` has been measured.")
        return
    yield from _paragraph(
        f"`{laptop.name}` on held-out text; the baseline always guesses the most frequent token, and minutes are the "
        "processor's: divide them by the cores that you have."
    )
    measures = ("steps", "tokens", "minutes", "accuracy", "baseline")
    bits = ("bits a character",) if any("bits_per_character" in figures for figures in values.values()) else ()
    headings = ("language", *measures, *bits, "command")
    rows = []
    for language, figures in sorted(values.items()):
        accuracy, baseline = (f"{figures[name]:.1%}" for name in ("accuracy", "unigram"))
        numbers = (f"{figures['steps']:,}", f"{figures['tokens']:,}", f"{figures['minutes']:.1f}", accuracy, baseline)
        spent = (f"{figures['bits_per_character']:.2f}" if "bits_per_character" in figures else "",) if bits else ()
        rows.append((language, *numbers, *spent, _code(figures["command"])))
    yield from _table(headings, rows, numbers=range(1, len(headings) - 1))


def _linked(name: str) -> str:
    return f"[{name}]({name}.md)"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    rule = ["---:" if column in numbers else "---" for column in range(len(headings))]
    return [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)] + [""]


def write(docs: Path) -> None:
    """Write the pages that changed, and delete those of recipes that are gone."""
    file = docs / MEASURED
    written = pages(json.loads(file.read_text(encoding="utf-8")) if file.exists() else {})
    (docs / "recipes").mkdir(exist_ok=True)
    for path in (docs / "recipes").glob("*.md"):
        if f"recipes/{path.name}" not in written:
            path.unlink()
    for name, text in written.items():
        atomic_io.write_bytes(docs / name, text.encode())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
