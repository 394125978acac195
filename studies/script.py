"""What the experiments that are run as `python -m clozeworks.evaluate.NAME` have in common."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from clozeworks.core.errors import InputError
from clozeworks.corpus import english
from clozeworks.plots import charts


class Arguments(argparse.ArgumentParser):
    """--seeds, --plot, --steps where counted, --text where one may be given; mistakes are told in a sentence."""

    def __init__(self, name: str, about: str, example: str, steps: int | None, text: bool = False):
        super().__init__(
            f"clozeworks.evaluate.{name}", description=about, epilog=f"example: {example}", allow_abbrev=False
        )
        self.name, self.example = name, example
        self.add_argument("--seeds", default="0,1,2", help="whole numbers, with commas (0,1,2)")
        if steps is not None:
            self.add_argument("--steps", default=str(steps), help=f"of each training ({steps})")
        self.add_argument("--plot", metavar="FILE", help="draw it, too: .svg, .png or .pdf")
        if text:
            self.add_argument("--text", metavar="FILE", help="the text to learn (the embedded one)")

    def error(self, message: str) -> NoReturn:
        raise InputError(self.name, message, "arguments as --help tells are needed", f"for example: {self.example}")


def answer(
    parser: Arguments,
    words: Sequence[str] | None,
    run: Callable[..., dict[str, Any]],
    draw: Callable[[dict[str, Any], str], None],
) -> int:
    """Run it with all that was given, draw it where asked, print one JSON object; 0 done, 2 bad input."""
    try:
        options = parser.parse_args(words)
        if options.plot:
            charts.check_ending(options.plot)
        own = {name: value for name, value in vars(options).items() if name not in ("seeds", "plot")}
        if "steps" in own:
            own["steps"] = numbers("--steps", own["steps"], 1)[0]
        figures = run(numbers("--seeds", options.seeds), **own)
        if options.plot:
            draw(figures, options.plot)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(figures))
    return 0


def trained(recipe: Any, data: Path, out: Path) -> Any:
    """The model of a silent run. One that is asked to stop ends the experiment, for half a run has other figures."""
    from rich.console import Console

    import clozeworks  # what a user calls, and nothing behind it

    done = clozeworks.pretrain(recipe, data, out, progress=False, console=Console(quiet=True))
    if not done.finished:
        raise SystemExit(128 + done.signal)
    return clozeworks.load(out)


def characters(text: str | None, data: Path) -> None:
    """Prepare a text file, or the embedded English text, character by character, a twentieth of it held out."""
    import clozeworks

    if text is not None and not Path(text).is_file():
        raise InputError("--text", text, "a text file is needed", "leave it out for the embedded text")
    clozeworks.prepare(text or english.documents(), data, tokenizer="chars", lang="en", heldout=0.05)


def numbers(option: str, text: str, least: int = 0) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= least for word in words):
        raise InputError(option, text or "nothing", f"whole numbers from {least} on are needed", "such as 0,1,2")
    return [int(word) for word in words]
