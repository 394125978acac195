"""The text that word vectors and phrases are learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clozeworks.cli.arguments import JsonOptions, argument, choice, integer, option
from clozeworks.core.errors import InputError

STAGES = {
    "words": "reading",
    "pairs": "counting pairs",
    "merge": "sorting pairs",
    "fit": "fitting",
    "train": "training",
}


@dataclass(kw_only=True)
class TextOptions(JsonOptions):
    """Which text, and how it becomes words."""

    text: list[str] = argument("TEXT", "files, directories or globs to learn from", nargs="*")
    corpus: str | None = choice("use the embedded text instead of files", "en", "zh")
    lang: str | None = choice("language of the text", "en", "zh", otherwise="detected from its letters")
    segmenter: str | None = option(
        "Chinese word segmenter, as in prepare; spaces: words are parted by spaces alone",
        metavar="NAME",
        otherwise="jieba for zh",
    )
    cased: bool = option("case-sensitive: keep capitals", False)
    no_punctuation: bool = option("drop punctuation", False)
    field: str = option("the field or column that holds the text", "text", metavar="NAME")
    encoding: str = option("character encoding, such as gb18030; auto detects it", "utf-8", metavar="NAME")
    errors: str = choice(
        "what to do with bytes and rows that cannot be read", "strict", "replace", "skip", default="strict"
    )
    processes: int = integer("number of processes that read the text", 1)
    engine: str = choice("where processes run", "local", "ray", default="local")


def how_to_read(options: TextOptions) -> dict[str, Any]:
    from clozeworks.data.text.documents import Reading

    return {
        "lang": options.lang or options.corpus,
        "lowercase": not options.cased,
        "segmenter": options.segmenter,
        "marks": not options.no_punctuation,
        "reading": Reading(field=options.field, encoding=options.encoding, errors=options.errors),  # pyright: ignore[reportArgumentType]
        "processes": options.processes,
        "engine": options.engine,
    }


def choose_source(options: TextOptions) -> Any:
    from clozeworks import corpus

    if bool(options.text) == bool(options.corpus):
        given = "both files and --corpus" if options.text else "no text"
        name = " ".join(options.words[:2])
        todo = f"for example: clozeworks {name} corpus.txt --out words.safetensors"
        raise InputError(f"clozeworks {name}", given, "text of yours or the embedded corpus", todo)
    return corpus.documents(options.corpus) if options.corpus else options.text
