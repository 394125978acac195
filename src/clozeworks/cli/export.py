"""clozeworks export"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import JsonOptions, ModelOptions, choice, option

if TYPE_CHECKING:
    from clozeworks.inference.text_encoder import TextEncoder


@dataclass(kw_only=True)
class Options(JsonOptions, ModelOptions):
    """Export a model for other libraries

    hf: a directory for transformers' from_pretrained. sentence-transformers: one for the library of that name, with
    the pooling of the model. clozeworks: a model directory of ours, without the history of its run.

    clozeworks export run --to hf --out my-bert
    clozeworks export sentences --to sentence-transformers --out my-sentences
    clozeworks export run --to clozeworks --out model
    """

    to: str = choice("the format", "hf", "clozeworks", "sentence-transformers", default="hf")
    out: str = option("directory to write", required=True, metavar="DIR")


def run(options: Options) -> None:
    """Write the model in the format that was asked for, and say how to use it there."""
    from clozeworks.cli import named
    from clozeworks.inference.text_encoder import save
    from clozeworks.screen.console import closing, emit, screen

    encoder = named.model(options.model, options.parts, options.allow_pickle)
    out = save(encoder, options.out, options.to)  # pyright: ignore[reportArgumentType]
    files = sorted(path.name for path in out.iterdir())
    if options.json:
        emit({"out": str(out), "format": options.to, "files": files, "unused": encoder.unused})
        return
    console = screen()
    console.print(f"{encoder.recipe.name}: {', '.join(files)}")
    closing(console, str(out), *_next_commands(encoder, options, str(out)))


def _next_commands(encoder: "TextEncoder", options: Options, out: str) -> list[str]:
    """What can be done with the directory: there, here, and to train it further."""
    from clozeworks.cli.next_command import suggest_command
    from clozeworks.exchange.card import PIPELINES

    recipe, task, place, commands = encoder.recipe, encoder.recipe.task, shlex.quote(out), []
    if encoder.tokenizer is None:  # nothing could be read
        return []
    masked = any(loss.name == "masked_lm" for loss in recipe.objective.losses)
    use = task.pipeline_tag if task is not None else "fill-mask" if masked else None
    if options.to == "hf" and use in PIPELINES:
        loads = f"""from transformers import pipeline; print(pipeline("{use}", "{out}"))"""
        commands.append(f"python3 -c {shlex.quote(loads)}")
    if options.to == "sentence-transformers" or (task is not None and not task.has_head):
        commands.append(f"clozeworks encode {place} lines.txt --out vectors.npy")
    elif task is not None:
        commands.append(f"clozeworks predict {place} rows.jsonl")
    else:
        commands.append(suggest_command(recipe, out, encoder.tokenizer))
    if task is None and recipe.objective.losses and (Path(options.model) / "recipe.json").is_file():
        model = shlex.quote(options.model)  # its own recipe: a named one may have other sizes
        commands.append(f"clozeworks pretrain {model} --from {place} --data DATA --out RUN")
    return commands
