"""clozeworks export"""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import JsonOptions, ModelOptions, choice, integer, one_of, option
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from clozeworks.inference.text_encoder import TextEncoder

FORMATS = ("hf", "clozeworks", "sentence-transformers", "onnx", "static", "model2vec")
TABLES = ("static", "model2vec")


@dataclass(kw_only=True)
class Options(JsonOptions, ModelOptions):
    """Export a model for other libraries

    hf: a directory for transformers' from_pretrained. sentence-transformers: one for the library of that name, with
    the pooling of the model. onnx: a graph for onnxruntime, with the tokenizer and a description of inputs and outputs
    beside it. static: a table of token vectors made of the encoder, as a model of ours; model2vec: the same for the
    library of that name. clozeworks: a model directory of ours, without the history of its run.

    clozeworks export run --to hf --out my-bert
    clozeworks export sentences --to sentence-transformers --out my-sentences
    clozeworks export task --to onnx --precision int8 --out my-onnx
    clozeworks export sentences --to static --dimensions 128 --out my-static
    clozeworks export run --to clozeworks --out model
    """

    to: str = option(f"one of {', '.join(FORMATS)}", "hf", metavar="FORMAT", type=one_of(*FORMATS))
    out: str = option("directory to write", required=True, metavar="DIR")
    precision: str | None = choice("of the weights in an ONNX file", "fp32", "int8", otherwise="fp32")
    dimensions: int | None = integer("of static token vectors, by PCA", None, least=1, otherwise="256")


def run(options: Options) -> None:
    """Write the model in the format that was asked for, and say how to use it there."""
    from clozeworks.cli import named
    from clozeworks.inference.text_encoder import save
    from clozeworks.screen.console import closing, emit, screen

    refuse_idle(options)
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    given: Any = (options.to, options.precision or "fp32", options.dimensions)
    out = save(encoder, options.out, *given)
    files = sorted(path.name for path in out.iterdir())
    graph = json.loads((out / "onnx.json").read_text(encoding="utf-8")) if options.to == "onnx" else None
    if options.json:
        known = {"out": str(out), "format": options.to, "files": files, "unused": encoder.unused}
        emit(known if graph is None else {**known, "onnx": graph})
        return
    console = screen()
    console.print(f"{encoder.recipe.name}: {', '.join(files)}")
    if graph is not None:
        console.print(describe_graph(graph))
    closing(console, str(out), *_next_commands(encoder, options, str(out)))


def refuse_idle(options: Options) -> None:
    """An option that the format has no use for."""
    for name, given, formats in (
        ("--precision", options.precision, ("onnx",)),
        ("--dimensions", options.dimensions, TABLES),
    ):
        if given is not None and options.to not in formats:
            needed = f"it is for --to {' and '.join(formats)}, and this is {options.to}"
            raise InputError(name, given, needed, "leave it out")


def describe_graph(facts: dict[str, Any]) -> str:
    """What goes in and comes out, how large it is, and how far from the model."""
    text = f"{', '.join(facts['inputs'])} -> {', '.join(facts['outputs'])}, opset {facts['opset']}, "
    text += f"{facts['precision']}, {facts['bytes'] / 1e6:,.1f} MB\n"
    if facts["checked"] is None:
        return f"{text}not checked, since onnxruntime is not installed: pip install 'clozeworks[onnx]'"
    differences = [
        f"{name} {each['largest_difference']:.2g} (cosine {each['smallest_cosine']:.4f} or more)"
        for name, each in facts["checked"]["outputs"].items()
    ]
    return f"{text}largest difference from the model in onnxruntime, {facts['checked']['rows']} texts and rows: " + (
        ", ".join(differences)
    )


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
    if options.to == "onnx":
        loads = f"""import onnxruntime; print(onnxruntime.InferenceSession("{out}/model.onnx").get_outputs()[0])"""
        return [f"python3 -c {shlex.quote(loads)}"]
    if options.to == "model2vec":
        loads = f"""from model2vec import StaticModel; print(StaticModel.from_pretrained("{out}").encode(["a text"]))"""
        return [f"python3 -c {shlex.quote(loads)}"]
    if options.to in ("sentence-transformers", "static") or (task is not None and not task.has_head):
        commands.append(f"clozeworks encode {place} lines.txt --out vectors.npy")
    elif task is not None:
        commands.append(f"clozeworks predict {place} rows.jsonl")
    else:
        commands.append(suggest_command(recipe, out, encoder.tokenizer))
    if task is None and recipe.objective.losses and (Path(options.model) / "recipe.json").is_file():
        model = shlex.quote(options.model)  # its own recipe: a named one may have other sizes
        commands.append(f"clozeworks pretrain {model} --from {place} --data DATA --out RUN")
    return commands
