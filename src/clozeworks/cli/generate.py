"""clozeworks generate"""

import shlex
from dataclasses import dataclass
from typing import ClassVar

from clozeworks.cli.arguments import Idle, InferenceOptions, argument, integer, number, option, random_seed
from clozeworks.core.errors import InputError


@dataclass(kw_only=True)
class Options(InferenceOptions):
    """Continue a text with a causal language model

    Tokens are sampled, the same ones for a seed: from all, from the --top-k most likely, or by nucleus sampling
    (--top-p). --temperature 0 is greedy decoding, --beams N is beam search.

    clozeworks generate run "Once upon a time" --max-new-tokens 60
    clozeworks generate run "Once upon a time" --temperature 0.8 --top-p 0.9 --count 3
    clozeworks generate run "Once upon a time" --beams 4
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(
            ("temperature", "top_k", "top_p", "seed"),
            lambda options: options.beams > 1,
            "--beams takes the most likely and draws nothing",
        ),
        Idle(
            ("top_k", "top_p", "seed", "count"),
            lambda options: options.temperature == 0,
            "greedy decoding draws nothing and writes one text",
            "leave it out, or give a temperature above 0",
        ),
        Idle(("length_penalty",), lambda options: options.beams == 1, "it scores beams", "add --beams 4"),
    )
    prompt: str = argument("PROMPT", "the text to continue (default: none)", nargs="?", default="")
    max_new_tokens: int = integer("tokens to add at most", 50)
    temperature: float = option(
        "sampling temperature: below 1 less random, 0 greedy decoding", 1.0, type=number, metavar="T"
    )
    top_k: int | None = integer("sample from the K most likely tokens", metavar="K", otherwise="all")
    top_p: float | None = option(
        "nucleus sampling: from the most likely tokens that have the probability P together",
        type=number,
        metavar="P",
        otherwise=1,
    )
    beams: int = integer("beam search with N beams instead of sampling", 1)
    length_penalty: float = option("score beams by log p / length**A", 1.0, type=number, metavar="A")
    count: int = integer("how many texts to write", 1)
    seed: int = random_seed("random seed: another seed, another text", 0)


def run(options: Options) -> None:
    """Print the texts that the model continues the prompt with."""
    from rich.text import Text

    from clozeworks.cli import named
    from clozeworks.inference.generation import Sampling
    from clozeworks.screen.console import closing, emit, screen

    check(options)
    how = Sampling(options.temperature, options.top_k, options.top_p)
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    written = encoder.generate(
        options.prompt,
        options.max_new_tokens,
        how,
        beams=options.beams,
        penalty=options.length_penalty,
        count=options.count,
        seed=options.seed,
    )
    if options.json:
        emit({"model": options.model, "prompt": options.prompt, "texts": written})
        return
    console = screen()
    for place, one in enumerate(written):
        if place:
            console.print()
        console.print(Text(one["text"]))
    again = f"clozeworks generate {shlex.quote(options.model)} {shlex.quote(options.prompt)}"
    closing(console, None, f"{again} --seed {options.seed + 1}" if options.beams == 1 else f"{again} --temperature 0.8")


def check(options: Options) -> None:
    """Refuse more texts than there are beams."""
    if options.beams > 1 and options.count > options.beams:
        given = f"{options.count} texts of {options.beams} beams"
        raise InputError("--count", given, "there is a text for each beam at most", f"use --beams {options.count}")
