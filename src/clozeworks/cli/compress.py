"""clozeworks compress"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from clozeworks.cli.arguments import ColumnOptions, Idle, InferenceOptions, option, random_seed, refuse_given
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from clozeworks.compress.chain import Result
    from clozeworks.inference.text_encoder import TextEncoder


@dataclass(kw_only=True)
class Options(ColumnOptions, InferenceOptions):
    """Make a model smaller and faster, and measure it

    Applies steps in their order (--apply), or searches for those that reach a target (--target): tries each, keeps what
    pays, undoes what does not. Every row of the table was measured after the model was written and read again. Steps
    read one part of the data, are chosen on another, and reported on a third. What is written is an ordinary model
    directory, with all that was tried in compress.json. --dry-run says which steps there are and which the model takes.
    --rival trains the same small model without the original, for as many steps as distil takes: what that is worth.

    clozeworks compress task --data dev.jsonl --apply heads=0.3,ffn=0.5 --out small
    clozeworks compress task --data dev.jsonl --target size=10MB,quality=0.97 --out small --plot small.png
    clozeworks compress run --data data --dry-run
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(
            ("out", "plot", "apply", "target", "rival"),
            lambda options: options.dry_run,
            "nothing is made with --dry-run",
        ),
    )
    data: str = option(
        "labelled rows for a task, else texts or what prepare wrote: not trained on", required=True, metavar="FILE|DIR"
    )
    apply: str | None = option("steps in their order, such as heads=0.3,ffn=0.5,exit=0.3", metavar="STEPS")
    target: str | None = option("size=10MB, speed=4x, quality=0.99: one or several, with commas", metavar="AIM")
    out: str | None = option("directory of the smaller model", metavar="DIR")
    plot: str | None = option("draw quality against size and speed: .png, .svg, .pdf", metavar="FILE")
    rival: bool = option("also train its recipe directly, with distil's steps and no teacher, and compare", False)
    seed: int = random_seed("random seed of the parts and masks", 0)
    dry_run: bool = option("list the steps that this model takes, and why it refuses others", False)


def run(options: Options) -> int:
    """Compress, and say what came of it."""
    from clozeworks.cli import named
    from clozeworks.compress.run import compress
    from clozeworks.screen.console import emit, screen

    if not options.dry_run and (options.apply is None) == (options.target is None):
        given = "neither --apply nor --target" if options.apply is None else "both --apply and --target"
        todo = "--dry-run lists the steps; for example: --apply heads=0.3,ffn=0.5"
        raise InputError("clozeworks compress", given, "one of them is needed", todo)
    if not options.dry_run and options.out is None:
        raise InputError("clozeworks compress", "no --out", "a directory for the model is needed", "add --out small")
    data = existing(options.data, "a file of rows or texts, or a prepared directory")
    if data.is_dir():
        refuse_given(options, ("columns",), "a prepared directory has none", "leave it out")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    columns = named.pairs(options.columns, "--columns")
    if options.dry_run:
        list_steps(options, encoder, columns)
        return 0
    assert options.out is not None
    with screen(stderr=True).status("reading") as status:
        result = compress(
            encoder,
            options.apply,
            data=data,
            out=options.out,
            target=options.target,
            columns=columns,
            plot=options.plot,
            rival=options.rival,
            seed=options.seed,
            parts=named.parts(options.parts),
            tell=lambda text: status.update(text),
        )
    if options.json:
        emit({"model": options.model, "data": options.data, "target": options.target, **result.as_json()})
    else:
        show(options, encoder, result)
    return 1 if result.reached is False else 0


def show(options: Options, encoder: TextEncoder, result: Result) -> None:
    """Notes, what was tried, the table, how it ended, and the next command."""
    from clozeworks.compress.screen import show_rows, show_tried
    from clozeworks.screen.console import closing, note, screen

    console = screen()
    for text in result.notes:
        note(console, text)
    if result.tried:
        console.print()
        show_tried(console, result.tried)
    console.print()
    show_rows(console, result.rows, result.rivals)
    if result.reached is not None:
        console.print()
        verdict = "reached" if result.reached else "not reached; what came nearest is written"
        console.print(f"target {options.target}: {verdict} ({result.reason})", soft_wrap=True)
    out, data = shlex.quote(str(result.out)), shlex.quote(options.data)
    model = shlex.quote(options.model)
    if encoder.recipe.task is not None:
        command = f"clozeworks evaluate {out} --test {data} --against {model}"
    elif Path(options.data).is_dir() and encoder.recipe.objective.losses:
        command = f"clozeworks evaluate {out} --data {data} --against {model}"
    else:
        command = f"clozeworks encode {out} {'lines.txt' if Path(options.data).is_dir() else data} --out vectors.npy"
    closing(console, f"{result.out}" + (f", {options.plot}" if options.plot else ""), command)


def list_steps(options: Options, encoder: TextEncoder, columns: dict[str, str]) -> None:
    """Every step with what it would leave of this model, or why it refuses it."""
    from rich.text import Text

    from clozeworks.compress import step
    from clozeworks.compress.chain import try_steps
    from clozeworks.compress.division import divide
    from clozeworks.exchange import tensors
    from clozeworks.exchange.weights import sparse
    from clozeworks.screen.console import closing, emit, facts, screen

    division = divide(encoder, existing(options.data, "data"), columns, seed=options.seed)
    kinds = step.list_steps()
    outcomes = try_steps(encoder, kinds, division)
    before = sum(each.nbytes for each in sparse.pack(tensors.state(encoder.model)).values())
    rows, refused = {}, {}
    for name, made in outcomes.items():
        if isinstance(made, str):
            refused[name] = made
        else:
            rows[name] = sum(each.nbytes for each in sparse.pack(tensors.state(made.model)).values())
    if options.json:
        emit({"model": options.model, "bytes": before, "steps": rows, "refused": refused})
        return
    console = screen()
    console.print(f"{encoder.recipe.name}: {before / 1e6:.2f} MB of weights\n")
    lines = [
        (name, Text(f"{kinds[name]().spell()}: {size / 1e6:.2f} MB. {_summary(kinds[name])}"))
        for name, size in rows.items()
    ]
    console.print(facts([*lines, *((name, Text(f"refused: {why}")) for name, why in refused.items())]))
    steps = ",".join(list(rows)[:3]) or "STEP"
    model, data = shlex.quote(options.model), shlex.quote(options.data)
    closing(console, None, f"clozeworks compress {model} --data {data} --apply {steps} --out small")


def _summary(kind: type) -> str:
    """The first sentence of what a step says of itself."""
    return re.split(r"\. (?=[A-Z])", " ".join((kind.__doc__ or "").split("\n\n")[0].split()))[0]
