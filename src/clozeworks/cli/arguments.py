"""Arguments for people: a mistake becomes one sentence with a suggestion, never a page of usage.

A thin layer over argparse. tyro was tried: it is quick enough, but a misspelt *required* option gets no suggestion, its
errors are boxes of several lines beside our sentences, and it reflows the examples of a help page.
"""

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

from clozeworks.core.errors import InputError, suggest


class Parser(argparse.ArgumentParser):
    """The arguments of one command, with its examples below them."""

    def __init__(self, name: str, about: str, examples: Sequence[str]):
        epilog = "\n".join(["example:" if len(examples) == 1 else "examples:", *(f"  {line}" for line in examples)])
        super().__init__(
            prog=f"clozeworks {name}",
            description=about,
            epilog=epilog,
            formatter_class=_Format,
            allow_abbrev=False,
            add_help=False,
        )
        self.examples = examples
        self._optionals.title = "options"
        self._positionals.title = "arguments"
        self.add_argument("--help", "-h", action="help", help="this page")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        known = list(self._option_string_actions)
        for word in words[: words.index("--")] if "--" in words else words:
            option = word.split("=")[0]
            if re.match(r"--?[a-zA-Z]", word) and option not in known:
                names = [name for name in known if name.startswith("--")]
                raise InputError(self.prog, option, "there is no such option", suggest(option, names))
        options, rest = self.parse_known_intermixed_args(words)
        if rest:
            raise InputError(self.prog, rest[0], "that is one argument too many", f"for example: {self.examples[0]}")
        return options

    def error(self, message: str) -> NoReturn:
        if found := re.match(r"the following arguments are required: (.*)", message):
            raise InputError(self.prog, f"no {found[1]}", "it is needed", f"for example: {self.examples[0]}")
        if found := re.match(r"argument (\S+): (expected .*)", message):
            raise InputError(found[1], "nothing after it", found[2], f"for example: {self.examples[0]}")
        if (found := re.match(r"argument (\S+): (.*)", message)) and found[2].count("; ") == 2:  # from `_wrong`
            raise InputError(found[1], *found[2].split("; "))
        raise InputError(self.prog, message, "arguments as its help tells", f"see {self.prog} --help")


class _Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=26, width=80)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


# What may be given, as `type=` of an argument. argparse passes on the text of an ArgumentTypeError alone.


def one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise _wrong(text, f"one of {', '.join(names)} is needed", suggest(text, names))
        return text

    return read


def whole(least: int = 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            number = least - 1
        if number < least:
            raise _wrong(text, f"a whole number, {least} or more, is needed", "change it")
        return number

    return read


def share(text: str) -> float:
    return _below_one(text, "a share", "0.02")


def rate(text: str) -> float:
    return _below_one(text, "a rate", "0.1")


def _below_one(text: str, what: str, usual: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise _wrong(text, f"{what} from 0 up to 1 is needed", f"{usual} is usual")
    return number


def _wrong(given: str, needed: str, todo: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{given}; {needed}; {todo}")


# What several commands take.

RECIPE = "a name (see `clozeworks recipes`), a recipe.json, or file.py:function"
MODEL = "a run, a model directory, or a Hugging Face directory"


def json_facts(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="facts as JSON on standard output, and nothing else there")


def recipe(parser: Parser, nargs: Literal["?"] | None = None) -> None:
    parser.add_argument("recipe", metavar="RECIPE", nargs=nargs, help=RECIPE)
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="change a field, such as train.steps=500 or encoder.stack.depth=4; may be repeated",
    )


def model(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument("--parts", metavar="FILE.py", help="a file with parts of your own that the model is made of")
    allow_pickle(parser)


def columns(parser: Parser) -> None:
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="NAME=YOURS",
        help="which column is which, such as text=review label=stars (guessed from usual names)",
    )


def beams(parser: Parser) -> None:
    parser.add_argument("--beams", type=whole(), default=4, metavar="N", help="a translation is the best of N (4)")
    parser.add_argument(
        "--penalty", type=float, default=0.6, metavar="A", help="they are scored by log p / ((5 + length) / 6)**A (0.6)"
    )


def allow_pickle(parser: Parser) -> None:
    parser.add_argument(
        "--allow-pickle", action="store_true", help="open a pickled weights file, tensors only, in a child process"
    )


Options = argparse.Namespace
