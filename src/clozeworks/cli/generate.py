"""clozeworks generate"""

import shlex

from rich.text import Text

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.core.errors import InputError
from clozeworks.inference.generation import Sampling
from clozeworks.screen.console import closing, emit, screen


def run(options: Options) -> None:
    if options.beams > 1 and (options.top_k, options.top_p, options.temperature) != (None, None, 1.0):
        given = f"{options.beams} beams with --temperature, --top-k or --top-p"
        raise InputError("--beams", given, "beams take the likeliest and draw nothing", "leave the others out")
    if options.beams > 1 and options.count > options.beams:
        given = f"{options.count} texts of {options.beams} beams"
        raise InputError("--count", given, "there is a text for each beam at most", f"use --beams {options.count}")
    how = Sampling(options.temperature, options.top_k, options.top_p)
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    more = {"beams": options.beams, "penalty": options.length_penalty, "count": options.count, "seed": options.seed}
    found = encoder.generate(options.prompt, options.tokens, how, **more)
    if options.json:
        emit({"model": options.model, "prompt": options.prompt, "texts": found})
        return
    console = screen()
    for number, one in enumerate(found):
        if number:
            console.print()
        console.print(Text(one["text"]))
    again = f"clozeworks generate {shlex.quote(options.model)} {shlex.quote(options.prompt)}"
    closing(console, None, f"{again} --seed {options.seed + 1}" if options.beams == 1 else f"{again} --temperature 0.8")
