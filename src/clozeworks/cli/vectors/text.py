"""The text that word vectors and phrases are learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clozeworks.cli.arguments import choice, integer, option
from clozeworks.cli.text import TextOptions
from clozeworks.core.bounds import MOST_PROCESSES

STAGES = {
    "words": "reading",
    "pairs": "counting pairs",
    "merge": "sorting pairs",
    "fit": "fitting",
    "train": "training",
}


@dataclass(kw_only=True)
class WordOptions(TextOptions):
    """Which text, and how it becomes words."""

    segmenter: str | None = option(
        "Chinese word segmenter, as in prepare; spaces: words are parted by spaces alone",
        metavar="NAME",
        otherwise="jieba for zh",
    )
    cased: bool = option("case-sensitive: keep capitals", False)
    no_punctuation: bool = option("drop punctuation", False)
    processes: int = integer("number of processes that read the text", 1, most=MOST_PROCESSES)
    engine: str = choice("where processes run", "local", "ray", default="local")


def how_to_read(options: WordOptions) -> dict[str, Any]:
    """How the text becomes words, as trainers and `read_words` take it."""
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
