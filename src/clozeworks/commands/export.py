"""clozeworks export"""

import shlex

from clozeworks.commands import named
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import closing, emit, screen
from clozeworks.text_encoder import save


def run(options: Options) -> None:
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    out = save(encoder, options.out, options.to)
    files = sorted(path.name for path in out.iterdir())
    if options.json:
        emit({"out": str(out), "format": options.to, "files": files, "unused": encoder.unused})
        return
    console = screen()
    console.print(f"{encoder.recipe.name}: {', '.join(files)}")
    commands = [f"clozeworks pretrain {encoder.recipe.name} --from {shlex.quote(str(out))} --data DATA --out RUN"]
    heads = {loss.name for loss in encoder.recipe.objective.losses}
    if options.to == "hf" and encoder.tokenizer is not None and "masked_lm" in heads:
        loads = f"""from transformers import pipeline; print(pipeline("fill-mask", "{out}"))"""
        commands.insert(0, f"python3 -c {shlex.quote(loads)}")
    elif "next_token" in heads:
        commands.insert(0, f"clozeworks generate {shlex.quote(str(out))}")
    closing(console, str(out), *commands)
