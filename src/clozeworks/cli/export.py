"""clozeworks export"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from clozeworks.cli.arguments import JsonOptions, ModelOptions, choice, option


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
    from clozeworks.exchange.card import PIPELINES
    from clozeworks.inference.text_encoder import save
    from clozeworks.recipes import named as recipes
    from clozeworks.screen.console import closing, emit, screen

    encoder = named.model(options.model, options.parts, options.allow_pickle)
    out = save(encoder, options.out, options.to)  # pyright: ignore[reportArgumentType]
    files = sorted(path.name for path in out.iterdir())
    if options.json:
        emit({"out": str(out), "format": options.to, "files": files, "unused": encoder.unused})
        return
    console = screen()
    console.print(f"{encoder.recipe.name}: {', '.join(files)}")
    name, own = encoder.recipe.name, Path(options.model) / "recipe.json"
    if name not in recipes():
        name = shlex.quote(str(options.model)) if own.exists() else "RECIPE"
    commands = [f"clozeworks pretrain {name} --from {shlex.quote(str(out))} --data DATA --out RUN"]
    heads = {loss.name for loss in encoder.recipe.objective.losses}
    task = encoder.recipe.task
    use = "fill-mask" if "masked_lm" in heads else None if task is None else task.pipeline_tag
    if options.to == "hf" and encoder.tokenizer is not None and use in PIPELINES:
        loads = f"""from transformers import pipeline; print(pipeline("{use}", "{out}"))"""
        commands.insert(0, f"python3 -c {shlex.quote(loads)}")
    elif encoder.recipe.decoder is not None:
        commands.insert(0, f'clozeworks translate {shlex.quote(str(out))} "..."')
    elif "next_token" in heads:
        commands.insert(0, f"clozeworks generate {shlex.quote(str(out))}")
    closing(console, str(out), *commands)
