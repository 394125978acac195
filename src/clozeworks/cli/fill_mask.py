"""clozeworks fill-mask"""

import shlex
from dataclasses import dataclass

from clozeworks.cli.arguments import InferenceOptions, argument, integer


@dataclass(kw_only=True)
class Options(InferenceOptions):
    """Predict the words behind each [MASK] of a text

    Masked language modelling: the words that a pretrained model finds most likely there.

    clozeworks fill-mask run "The value must be a [MASK]."
    """

    text: str = argument("TEXT", "a text with [MASK] (or what the tokenizer calls it) where a word is missing")
    top: int = integer("how many words to show for each mask", 5)


def run(options: Options) -> None:
    """Print the most likely words of each mask."""
    from rich.text import Text

    from clozeworks.cli import named
    from clozeworks.screen.console import closing, columns, emit, screen

    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    guessed = encoder.fill_mask(options.text, options.top)
    masks = guessed if isinstance(guessed[0], list) else [guessed]
    if options.json:
        emit({"model": options.model, "text": options.text, "masks": masks})
        return
    console = screen()
    for number, guesses in enumerate(masks):
        if number:
            console.print()
        table = columns("word" if len(masks) == 1 else f"word {number + 1}", "chance", "", right=("chance",))
        for guess in guesses:
            bar = (
                ("#" if console.options.ascii_only else "█") * max(1, round(30 * guess["score"]))
                if guess["score"] > 0.01
                else ""
            )
            table.add_row(Text(guess["token"]), f"{guess['score']:.1%}", f"[cyan]{bar}[/]")
        console.print(table)
    place = shlex.quote(options.model)
    closing(console, None, f"clozeworks finetune classify --model {place} --train train.jsonl --out classes")
