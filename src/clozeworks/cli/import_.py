"""clozeworks import"""

from dataclasses import dataclass

from clozeworks.cli.arguments import JsonOptions, PickleOptions, argument, option


@dataclass(kw_only=True)
class Options(JsonOptions, PickleOptions):
    """Import a Hugging Face checkpoint

    clozeworks import HF_DIR --out model
    """

    model: str = argument("HF_DIR", "a directory with config.json, model.safetensors and a tokenizer")
    out: str = option("directory to write", required=True, metavar="DIR")


def run(options: Options) -> None:
    """Write a model directory of ours, and say what was and what was not taken over."""
    from clozeworks.cli import named
    from clozeworks.cli.next_command import suggest_command
    from clozeworks.inference.text_encoder import save
    from clozeworks.screen.console import closing, emit, note, screen

    encoder = named.model(options.model, None, options.allow_pickle)
    out = save(encoder, options.out)
    parameters = sum(each.numel() for each in encoder.model.parameters() if each.is_floating_point())
    heads = [loss.name for loss in encoder.recipe.objective.losses]
    if options.json:
        emit({"out": str(out), "parameters": parameters, "heads": heads, "unused": encoder.unused})
        return
    console = screen()
    shape = encoder.recipe.encoder
    console.print(
        f"{encoder.recipe.name}: {shape.stack.depth} layers of width {shape.width}, {parameters:,} parameters, "
        f"{' and '.join(heads).replace('_', ' ') or 'no head'}"
    )
    if encoder.unused:
        note(console, f"not taken over, no part of ours reads them: {', '.join(encoder.unused)}")
    if encoder.tokenizer is None:
        note(console, "no tokenizer there: the model works on ids; put tokenizer.json beside it for text")
    if encoder.recipe.task is not None:
        labels = ", ".join(encoder.recipe.task.labels[:12])
        closing(console, str(out) + (f" ({labels})" if labels else ""), f"clozeworks predict {out} rows.jsonl")
        return
    more = []
    if heads and encoder.tokenizer is not None:  # its pretraining can be continued
        more = [f"clozeworks prepare TEXT --tokenizer {out} --out DATA"]
        more += [f"clozeworks pretrain {out} --from {out} --data DATA --out RUN"]
    closing(console, str(out), suggest_command(encoder.recipe, str(out), encoder.tokenizer), *more)
