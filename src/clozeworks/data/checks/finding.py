"""What a check has to say, and what all findings are drawn from."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clozeworks.core.errors import InputError
from clozeworks.data.checks.layout import Layout
from clozeworks.data.checks.raw import Raw
from clozeworks.data.checks.survey import Survey
from clozeworks.data.records.counts import Counts
from clozeworks.data.text.documents import Reading
from clozeworks.data.tokens.tokenizer import Tokenizer

Kind = Literal["wrong", "note", "fine"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a corpus. `wrong`: preparing it would stop or lose text. `options` are what `todo` says, for a
    command line: an option and its value, or a flag and nothing.
    """

    kind: Kind
    text: str
    todo: str | None = None
    options: dict[str, str] = field(default_factory=dict)


def wrong(text: str, todo: str | None = None, options: dict[str, str] | None = None) -> Finding:
    """What would stop `prepare` or lose text."""
    return Finding("wrong", text, todo, options or {})


def note(text: str, todo: str | None = None, options: dict[str, str] | None = None) -> Finding:
    """What a user should know, and perhaps do something about."""
    return Finding("note", text, todo, options or {})


def fine(text: str) -> Finding:
    """What was looked at and is as it should be."""
    return Finding("fine", text)


@dataclass(frozen=True, slots=True)
class Aim:
    """What the text is to become; it decides what is enough."""

    lang: str | None = None
    tokenizer: Tokenizer | None = None
    kind: str = "wordpiece"
    vocab: int = 8192
    segmenter: str | None = None
    length: int = 128
    heldout: float = 0.02
    dedupe: bool = False
    out: str | os.PathLike[str] | None = None
    overwrite: bool = False


@dataclass(slots=True)
class File:
    """A file that was looked at. `refused` is what strict reading says of it, `empty` that it has no document."""

    path: Path
    name: str
    named: bool
    raw: Raw
    counts: Counts = field(default_factory=Counts)
    layout: Layout | None = None
    refused: InputError | None = None
    empty: bool = False


@dataclass(slots=True)
class Seen:
    """Everything that was seen. Of many files only those with something to report are kept, up to a limit."""

    reading: Reading
    aim: Aim
    survey: Survey
    counts: Counts = field(default_factory=Counts)
    files: int = 0
    bytes: int = 0
    troubled: list[File] = field(default_factory=list)
    plain: list[Layout] = field(default_factory=list)
    encodings: Counter[str] = field(default_factory=Counter)  # files that do not fit the encoding asked for, by theirs
    damaged: int = 0  # files with bytes that do not decode
    invalid: int = 0  # sequences of such bytes
    mixed: int = 0  # files in two encodings
    refused: int = 0
    other: int = 0  # files outside ASCII that fit the encoding asked for


def share(part: float, whole: float) -> str:
    """A share as people say it: never 0% of something that is there, nor 100% of what is not all."""
    if not part or not whole:
        return "0%"
    percent = 100 * part / whole
    if percent < 0.01:
        return "less than 0.01%"
    if percent > 99.5 and part < whole:
        return "over 99%"
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%" if percent >= 0.1 else f"{percent:.2f}%"


def listed(names: list[Any], most: int = 3, in_all: int | None = None) -> str:
    """The first few of them."""
    in_all = len(names) if in_all is None else in_all
    few = ", ".join(map(str, names[:most]))
    return few if in_all <= most else f"{few} and {in_all - min(most, len(names)):,} more"
