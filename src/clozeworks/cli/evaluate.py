"""clozeworks evaluate"""

from clozeworks.cli import named, pair_figures, sliding, task_figures
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.cli.to_try import to_try
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.text import adapt, check_tokenizer, evaluate_text
from clozeworks.screen.console import closing, emit, screen
from clozeworks.screen.heldout import ENGLISH, NEXT, ORDERED, tell


def run(options: Options) -> None:
    if (options.data is None) == (options.test is None):
        given = "neither --data nor --test" if options.data is None else "both --data and --test"
        raise InputError("clozeworks evaluate", given, "one of them is needed", "for example: --data data")
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    if encoder.recipe.task is not None:
        task_figures.run(options, encoder, screen())
        return
    for name in ("report", "columns"):
        if getattr(options, name):
            needed = "it is about labelled rows, and the model has no task"
            raise InputError(f"--{name}", options.model, needed, "leave it out, or see clozeworks finetune")
    encoder = adapt(encoder, options.max_length, options.memory, options.rounds)
    if options.test is not None or encoder.recipe.decoder is not None:
        if options.window is not None:
            raise InputError("--window", options.window, "it slides over text of one side", "leave it out")
        pair_figures.run(options, encoder, screen(), evaluate_text)
        return
    directory = existing(options.data, "a prepared directory")
    console = screen()
    if options.window is not None:
        text = Corpus.open(directory, "heldout")
        check_tokenizer(encoder, text)
        figures = sliding.figures_of(
            encoder, text, options.window, options.stride, options.tokens, bar=not options.json and console.is_terminal
        )
        if options.json:
            emit({"model": options.model, "data": options.data, "split": "heldout", **figures})
        else:
            sliding.tell(console, figures, directory)
            closing(console, None, to_try(encoder.recipe, options.model, encoder.tokenizer))
        return
    for name in ("stride", "tokens"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}", getattr(options, name), "it is about a window", "give --window, too")
    if options.json:
        figures = evaluate_text(encoder, directory, options.seed)
        emit({"model": options.model, "data": options.data, "split": "heldout", **figures})
        return
    with console.status("reading held-out text"):
        figures = evaluate_text(encoder, directory, options.seed)
    ahead = "next_token" in figures
    console.print(f"{figures['count']:,} {'' if ahead else 'hidden '}tokens of the held-out text of {directory}")
    if "streams" in figures:
        told = f"{figures['streams']} side by side, rows of {figures['length']}, a memory of {figures['memory']}"
        console.print(f"read as one text in streams: {told}")
    console.print()
    tell(console, figures, NEXT if ahead else ORDERED if "permuted_lm" in figures else ENGLISH)
    closing(console, None, to_try(encoder.recipe, options.model, encoder.tokenizer))
