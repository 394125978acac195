"""Arguments for people: a mistake becomes one sentence with a suggestion, never a page of usage.

The options of a command are a dataclass: its docstring is the help (a summary, perhaps more, and examples, which begin
with `clozeworks`), its fields are made by `argument` and `option`. A thin layer over argparse reads them. tyro was
tried: it is quick enough, but a misspelt *required* option gets no suggestion, its errors are boxes of several lines
beside our sentences, and it reflows the examples of a help page.
"""

import argparse
import contextlib
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

from clozeworks.core.bounds import GREATEST, LARGEST, LAST_SEED, Bound
from clozeworks.core.errors import InputError, suggest

T = TypeVar("T")
HINTS = {  # options, and what people type who mean them
    "--learning-rate": ("--lr", "--rate"),
    "--batch-size": ("--batch", "--bs", "--batch-tokens"),
    "--batch-tokens": ("--batch", "--bs", "--batch-size"),
    "--max-length": ("--length", "--max-len", "--seq-length", "--max-seq-length"),
    "--max-new-tokens": ("--length", "--tokens"),
    "--max-tokens": ("--tokens",),
    "--steps": ("--max-steps",),
    "--epochs": ("--num-train-epochs", "--num-epochs"),
    "--device": ("--gpu", "--cuda"),
    "--out": ("--output", "--output-dir"),
    "--beams": ("--num-beams",),
    "--length-penalty": ("--penalty",),
    "--context": ("--window",),
    "--attention-window": ("--window",),
    "--memory-mb": ("--memory",),
    "--phrase-passes": ("--phrases",),
    "--word-vectors": ("--words",),
    "--mark-words": ("--words",),
}


# What may be given, as `type=` of an argument. argparse passes on the text of an ArgumentTypeError alone.


def one_of(*names: str, advice: Callable[[str, Sequence[str]], str] = suggest) -> Callable[[str], str]:
    """One of the names; `advice` says what to do about another one."""

    def read(text: str) -> str:
        if text not in names:
            raise _wrong(text, f"one of {', '.join(names)} is needed", advice(text, names))
        return text

    return read


def _reads(convert: Callable[[str], T], fits: Callable[[T], bool], needed: str, todo: str) -> Callable[[str], T]:
    """What converts and fits; anything else is refused in these words."""

    def read(text: str) -> T:
        with contextlib.suppress(ValueError):
            value = convert(text)
            if fits(value):
                return value
        raise _wrong(text, needed, todo)

    return read


def whole(least: int = 1, most: int = LARGEST) -> Callable[[str], int]:
    """A whole number, in which commas and underscores may part the thousands."""
    convert = lambda text: int(text.replace(",", "").replace("_", ""))  # noqa: E731
    needed = f"a whole number, {least} or more, is needed"
    needed = needed if most == LARGEST else f"a whole number from {least} to {most:,} is needed"
    return _reads(convert, Bound(least, most).holds, needed, "change it")


share = _reads(float, Bound(0, 1, below=True).holds, "a share from 0 up to 1 is needed", "0.02 is usual")
positive = _reads(
    float, Bound(0, GREATEST, above=True).holds, "a number above 0 is needed", "1e-4 is usual for a learning rate"
)
number = _reads(float, Bound(-GREATEST, GREATEST).holds, "a number is needed", "change it")


def _wrong(given: str, needed: str, todo: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{given}; {needed}; {todo}")


# Fields of options.


def argument(
    metavar: str, help: str, *, type: Callable[[str], Any] = str, nargs: str | None = None, default: Any = None
) -> Any:
    """A field that is given by its place."""
    given = {"metavar": metavar, "help": help, "type": type, "nargs": nargs, "default": default}
    return _field(None, {name: value for name, value in given.items() if value is not None}, default, nargs)


def option(
    help: str,
    default: Any = None,
    *,
    metavar: str = "",
    type: Callable[[str], Any] = str,
    nargs: str | None = None,
    repeat: bool = False,
    required: bool = False,
    flag: str = "",
    otherwise: object = None,
) -> Any:
    """A field that is given by its name, `flag` where another one is better; `otherwise` says what happens by default.

    One that is False by default takes no value. With `repeat` it takes a value each time it is given, with `nargs`
    several values, and is a list of all either way; any other is given once.
    """
    shown = default if otherwise is None else otherwise
    if shown is not None and shown is not False:
        help = f"{help} (default: {shown})"
    if default is False:
        return _field(flag, {"action": "store_true", "help": help}, False, None)
    given: dict[str, Any] = {"metavar": metavar, "help": help, "type": type, "default": default}
    given |= {"action": "append"} if repeat else {}
    given |= {"nargs": nargs, "action": "extend"} if nargs else {}
    given |= {"required": True} if required else {}
    return _field(flag, given, default, "+" if repeat else nargs)


def integer(
    help: str,
    default: int | None = None,
    *,
    least: int = 1,
    most: int = LARGEST,
    metavar: str = "N",
    otherwise: object = None,
) -> Any:
    """An option that is a whole number."""
    return option(help, default, metavar=metavar, type=whole(least, most), otherwise=otherwise)


def random_seed(help: str, default: int | None = None, *, otherwise: object = None) -> Any:
    """An option that is a random seed."""
    return integer(help, default, least=0, most=LAST_SEED, metavar="S", otherwise=otherwise)


def changes(such_as: str = "train.steps=500 or encoder.stack.depth=4") -> Any:
    """The option --set of a command that takes a recipe."""
    return option(f"change a field, such as {such_as}; may be repeated", repeat=True, metavar="PATH=VALUE")


def choice(
    help: str, *names: str, default: str | None = None, otherwise: str | None = None, repeat: bool = False
) -> Any:
    """An option that is one of a few words."""
    return option(help, default, metavar="|".join(names), type=one_of(*names), otherwise=otherwise, repeat=repeat)


def _field(flag: str | None, given: dict[str, Any], default: Any, nargs: str | None) -> Any:
    several = nargs in ("*", "+")
    about = {"flag": flag, "given": given}
    if several:
        given["default"] = []
        return dataclasses.field(default_factory=list, metadata=about)
    return dataclasses.field(default=default, metadata=about)


# Options that several commands have.

RECIPE = "a name (see `clozeworks recipes`), a recipe.json, or file.py:function"
MODEL = "a run, a model directory, or a Hugging Face directory"


@dataclass(frozen=True, slots=True)
class Idle:
    """Options that would do nothing where `when` holds of the others; refused, for somebody waits for their effect."""

    names: tuple[str, ...]
    when: Callable[[Any], bool]
    needed: str
    todo: str = "leave it out"


@dataclass(kw_only=True)
class CommandOptions:
    """What every command has; `idle` are the rules that a kind of options adds to those of its bases."""

    idle: ClassVar[tuple[Idle, ...]] = ()
    words: list[str] = dataclasses.field(default_factory=list)  # the command line, as it was typed
    given: frozenset[str] = frozenset()  # the fields that it names

    def refuse_idle(self) -> None:
        """Refuse what has no effect beside the other options; what a model has no use for is refused where it is."""
        for rule in (rule for kind in type(self).__mro__ for rule in vars(kind).get("idle", ())):
            if rule.when(self):
                refuse_given(self, rule.names, rule.needed, rule.todo)

    def wants_verdict(self) -> bool:
        """Whether it pays to measure the machine first, where nobody has: some twenty seconds."""
        return False


@dataclass(kw_only=True)
class JsonOptions(CommandOptions):
    """Of commands whose result a program can read."""

    json: bool = option("print machine-readable JSON only", False)


@dataclass(kw_only=True)
class PickleOptions(CommandOptions):
    """Of commands that read weights of others."""

    allow_pickle: bool = option("open a pickled weights file, tensors only, in a child process", False)


@dataclass(kw_only=True)
class ModelOptions(PickleOptions):
    """Of commands that use one model."""

    model: str = argument("MODEL", MODEL)
    parts: str | None = option("a file with parts of your own that the model is made of", metavar="FILE.py")


@dataclass(kw_only=True)
class DeviceOptions(CommandOptions):
    """Of commands that compute."""

    device: str = option("the device to run on: cpu, cuda, cuda:1, ...", "auto", metavar="NAME")


@dataclass(kw_only=True)
class InferenceOptions(JsonOptions, DeviceOptions, ModelOptions):
    """Of commands that compute something with one model."""


@dataclass(kw_only=True)
class ColumnOptions(CommandOptions):
    """Of commands that read labelled rows."""

    columns: list[str] = option(
        "which column of the file is which, such as text=review label=stars",
        nargs="+",
        metavar="NAME=YOURS",
        otherwise="guessed from usual names",
    )


@dataclass(kw_only=True)
class BeamOptions(CommandOptions):
    """Of commands that translate by beam search."""

    beams: int = integer("beam search: keep the N best hypotheses of each text", 4)
    length_penalty: float = option("score hypotheses by log p / ((5 + length) / 6)**A", 0.6, type=number, metavar="A")


def refuse_given(options: CommandOptions, names: Sequence[str], needed: str, todo: str) -> None:
    """Refuse the first of these options that was given: it means nothing here."""
    made = {field.name: field for field in dataclasses.fields(options)}
    for name in names:
        if name in options.given:
            value = getattr(options, name)
            shown = "given" if value is True else " ".join(value) if isinstance(value, list) else value
            raise InputError(_flag(made[name]), shown, needed, todo)


def _flag(field: dataclasses.Field[Any]) -> str:
    return field.metadata["flag"] or f"--{field.name.replace('_', '-')}"


class Parser(argparse.ArgumentParser):
    """The options of one command, with its examples below them."""

    def __init__(self, name: str, options: type[CommandOptions]):
        self.summary, about, self.examples = read_docstring(options)
        title = "example:" if len(self.examples) == 1 else "examples:"
        super().__init__(
            prog=f"clozeworks {name}",
            description="\n\n".join(filter(None, [self.summary, textwrap.fill(about, 80, break_on_hyphens=False)])),
            epilog="\n".join([title, *(f"  {line}" for line in self.examples)]),
            formatter_class=_Format,
            allow_abbrev=False,
            add_help=False,
        )
        self.options = options
        self._optionals.title = "options"
        self._positionals.title = "arguments"
        self.add_argument("--help", "-h", action="help", help="print this page")
        for field in _in_order(options):
            self._add(field)

    def _add(self, field: dataclasses.Field[Any]) -> None:
        given = field.metadata["given"]
        if field.metadata["flag"] is None:
            self.add_argument(field.name, **given)
        else:
            self.add_argument(_flag(field), dest=field.name, **given)

    def read(self, words: Sequence[str]) -> Any:
        """The options that the words give."""
        known, seen = self._option_string_actions, set[str]()
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.split("=")[0]
            if re.match(r"--?[a-zA-Z]", word) and name not in known:
                raise InputError(self.prog, name, "there is no such option", _suggest_option(name, list(known)))
            if name in seen and not isinstance(known[name].default, list):
                raise InputError(name, "given twice", "it has one value", "leave one of them out")
            seen |= {name} & set(known)
        values, rest = self.parse_known_intermixed_args(words)
        if rest:
            raise InputError(self.prog, rest[0], "that is one argument too many", f"for example: {self.examples[0]}")
        options = self.options(**vars(values), given=frozenset(known[name].dest for name in seen))
        options.refuse_idle()
        return options

    def error(self, message: str) -> NoReturn:
        if match := re.match(r"the following arguments are required: (.*)", message):
            raise InputError(self.prog, f"no {match[1]}", "it is needed", f"for example: {self.examples[0]}")
        if match := re.match(r"argument (\S+): (expected .*)", message):
            raise InputError(match[1], "nothing after it", match[2], f"for example: {self.examples[0]}")
        if (match := re.match(r"argument (\S+): (.*)", message)) and match[2].count("; ") == 2:  # from `_wrong`
            raise InputError(match[1], *match[2].split("; "))
        raise InputError(self.prog, message, "arguments as its help says", f"see {self.prog} --help")


class _Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=26, width=80)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def read_docstring(options: type[CommandOptions]) -> tuple[str, str, list[str]]:
    """Summary, description and examples of a command."""
    summary, *rest = [line.strip() for line in (options.__doc__ or "").strip().splitlines()]
    examples = [line for line in rest if line.startswith("clozeworks ")]
    return summary, " ".join(line for line in rest if line not in examples).strip(), examples


def _in_order(options: type[CommandOptions]) -> list[dataclasses.Field[Any]]:
    """Arguments by their places, then the command's own options, then those it shares with others, --json last."""
    own = inspect.get_annotations(options)
    made = [field for field in dataclasses.fields(options) if "given" in field.metadata]

    def rank(field: dataclasses.Field[Any]) -> int:
        if field.metadata["flag"] is None:
            return 0
        return 3 if field.name == "json" else 1 if field.name in own else 2

    return sorted(made, key=rank)


def _suggest_option(name: str, known: Sequence[str]) -> str:
    meant = [option for option, typed in HINTS.items() if name in typed and option in known]
    if meant:
        return f"did you mean {meant[0]}?"
    return suggest(name, [each for each in known if each.startswith("--")])
