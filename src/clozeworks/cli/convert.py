"""clozeworks convert"""

import shlex
from dataclasses import dataclass

from clozeworks.cli.arguments import JsonOptions, ModelOptions, choice, integer, option
from clozeworks.core.errors import InputError


@dataclass(kw_only=True)
class Options(JsonOptions, ModelOptions):
    """Convert a short-context encoder to a Longformer

    Position embeddings are copied end to end; attention is a sliding window with global tokens. In texts that a window
    covers, without global tokens, the model computes the same. Pretrain it some more on long texts afterwards.

    clozeworks convert run --to longformer --out long
    clozeworks convert run --to longformer --max-length 2048 --attention-window 256 --out long
    clozeworks convert long-run --refresh-global --out long
    """

    to: str = choice("the architecture to make", "longformer", default="longformer")
    max_length: int | None = integer("sequence length: tokens of a text at most", otherwise=4096)
    attention_window: int | None = integer("tokens that a token attends to, half of them on either side", otherwise=512)
    refresh_global: bool = option(
        "of a converted model: copy the projections of global tokens again, which pretraining leaves behind", False
    )
    out: str = option("directory to write", required=True, metavar="DIR")


def run(options: Options) -> None:
    """Convert, and say what came of it."""
    from clozeworks.cli import named
    from clozeworks.exchange.lengthen import LENGTH, WINDOW, lengthen, refresh
    from clozeworks.inference.text_encoder import save
    from clozeworks.nn.mixers.global_window import GlobalWindow
    from clozeworks.screen.console import closing, emit, note, screen

    if options.refresh_global and (options.max_length, options.attention_window) != (None, None):
        needed = "length and window of a converted model stay as they are"
        raise InputError("--refresh-global", "with --max-length or --attention-window", needed, "leave them out")
    with screen(stderr=True).status(f"reading {options.model}") as status:
        encoder = named.model(options.model, options.parts, options.allow_pickle)
        status.update("converting")
        if options.refresh_global:
            made = refresh(encoder)
        else:
            made = lengthen(encoder, options.max_length or LENGTH, options.attention_window or WINDOW)
        status.update(f"writing {options.out}")
        out = save(made, options.out)
    mixers = made.recipe.encoder.stack.mixers()
    windows = [2 * mixer.window.left for mixer in mixers if isinstance(mixer, GlobalWindow)]
    parameters = sum(parameter.numel() for parameter in made.model.parameters())
    if options.json:
        emit({"out": str(out), "length": made.longest, "windows": windows, "parameters": parameters})
        return
    console, place = screen(), shlex.quote(str(out))
    shown = str(windows[0]) if len(set(windows)) == 1 else ", ".join(map(str, windows))
    console.print(
        f"{made.recipe.name}: texts of {made.longest:,} tokens, windows of {shown}, {parameters:,} parameters"
    )
    if options.refresh_global:
        closing(console, str(out), f"clozeworks export {place} --to hf --out my-longformer")
        return
    note(
        console, "trained without global tokens, their projections stay behind: convert RUN --refresh-global afterwards"
    )
    closing(
        console,
        str(out),
        f"clozeworks pretrain {place} --from {place} --data DATA --out RUN",
        "clozeworks convert RUN --refresh-global --out DIR",
    )
