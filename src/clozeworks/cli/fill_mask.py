"""clozeworks fill-mask"""

import shlex

from rich.text import Text

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.screen.console import closing, columns, emit, screen


def run(options: Options) -> None:
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    found = encoder.fill_mask(options.text, options.top)
    masks = found if isinstance(found[0], list) else [found]
    if options.json:
        emit({"model": options.model, "text": options.text, "masks": masks})
        return
    console = screen()
    for number, guesses in enumerate(masks):
        if number:
            console.print()
        table = columns("word" if len(masks) == 1 else f"word {number + 1}", "chance", "", right=("chance",))
        for guess in guesses:
            bar = "█" * max(1, round(30 * guess["score"])) if guess["score"] > 0.01 else ""
            table.add_row(Text(guess["token"]), f"{guess['score']:.1%}", f"[cyan]{bar}[/]")
        console.print(table)
    place = shlex.quote(options.model)
    closing(console, None, f"clozeworks finetune classify --model {place} --train train.jsonl --out classes")
