"""The text that commands read: files of the user's, or the embedded corpus."""

from dataclasses import dataclass
from typing import Any, ClassVar

from clozeworks.cli.arguments import Idle, JsonOptions, argument, choice, option
from clozeworks.core.errors import InputError


@dataclass(kw_only=True)
class TextOptions(JsonOptions):
    """Which text, and how its files are read."""

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("field", "encoding", "errors"), lambda options: options.corpus, "the embedded text is read from no file"),
    )
    text: list[str] = argument("TEXT", "files, directories, globs, or - for standard input", nargs="*")
    corpus: str | None = choice("use the embedded text instead of TEXT", "en", "zh")
    lang: str | None = choice("language of the text", "en", "zh", otherwise="detected from its letters")
    field: str = option("the field or column that holds the text", "text", metavar="NAME")
    encoding: str = option("character encoding, such as gb18030; auto detects it", "utf-8", metavar="NAME")
    errors: str = choice(
        "what to do with bytes and rows that cannot be read", "strict", "replace", "skip", default="strict"
    )


def choose_source(options: TextOptions, command: str, out: str) -> Any:
    """The files, or the documents of the embedded corpus; `command` and `out` are for an example of how to ask."""
    from clozeworks import corpus

    if bool(options.text) == bool(options.corpus):
        given = "both TEXT and --corpus" if options.text else "no text"
        todo = f"for example: clozeworks {command} corpus.txt --out {out}"
        raise InputError(f"clozeworks {command}", given, "files of yours or the embedded corpus", todo)
    return corpus.documents(options.corpus) if options.corpus else options.text
