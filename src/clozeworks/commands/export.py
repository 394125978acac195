"""clozeworks export"""

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
    loads = f"""python3 -c 'from transformers import pipeline; print(pipeline("fill-mask", "{out}"))'"""
    commands = [f"clozeworks pretrain bert_mini --from {out} --data DATA --out RUN"]
    if options.to == "hf" and encoder.tokenizer is not None:
        commands.insert(0, loads)
    closing(console, str(out), *commands)
