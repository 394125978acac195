"""clozeworks quickstart"""

from dataclasses import dataclass
from pathlib import Path

from clozeworks.cli.arguments import CommandOptions, choice, integer, option, random_seed


@dataclass(kw_only=True)
class Options(CommandOptions):
    """Go from text to a trained model in about two minutes

    Prepares the embedded text, pretrains a small BERT on it, evaluates it, fills masks and exports it.

    clozeworks quickstart
    clozeworks quickstart --lang zh --out quickstart-zh
    """

    lang: str = choice("language of the text", "en", "zh", default="en")
    out: str | None = option("directory to write", metavar="DIR", otherwise="quickstart-LANG")
    steps: int | None = integer("training steps; fewer are quicker and worse")
    seed: int = random_seed("random seed: another seed, another model", 0)


def run(options: Options) -> int:
    from clozeworks import quickstart
    from clozeworks.screen.console import screen

    out = Path(options.out or f"quickstart-{options.lang}")
    return quickstart.run(options.lang, out, options.steps, options.seed, screen())
