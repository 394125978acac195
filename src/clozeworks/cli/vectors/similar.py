"""clozeworks vectors similar"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import argument, integer, option
from clozeworks.cli.vectors.table import TableOptions, open_vectors
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from clozeworks.vectors.table import Vectors


@dataclass(kw_only=True)
class Options(TableOptions):
    """Find the nearest words by cosine similarity

    clozeworks vectors similar words.txt king
    clozeworks vectors similar words.txt king woman --minus man
    """

    file: str | None = argument("FILE", "a file of vectors", nargs="?")
    terms: list[str] = argument("WORD", "words to be near to", nargs="*")
    minus: list[str] = option("words to be far from", nargs="+", metavar="WORD")
    top: int = integer("how many words to show", 10)
    cased: bool = option("case-sensitive: do not fold the case of words", False)


def run(options: Options) -> None:
    """The nearest words by cosine."""
    from rich.text import Text

    from clozeworks.screen.console import closing, columns, emit, screen

    if options.file is None or not (options.terms or options.minus):
        todo = "for example: clozeworks vectors similar words.txt king"
        given = "no word" if options.file else "no file of vectors"
        raise InputError("clozeworks vectors similar", given, "a file and a word are needed", todo)
    path, words = options.file, options.terms
    vectors = open_vectors(options, path)
    if not options.cased:
        words, minus = ([_fold(vectors, word) for word in each] for each in (words, options.minus))
    else:
        minus = options.minus
    near, far = ([_look_up(vectors, word) for word in each] for each in (words, minus))
    nearest = vectors.most_similar(near, far, options.top)
    if not nearest:
        given = f"all of its {len(vectors):,} words are asked for"
        raise InputError(path, given, "another word is needed to be near", "ask for fewer words, or a larger --limit")
    if options.json:
        emit({"words": words, "minus": minus, "similar": dict(nearest)})
        return
    console = screen()
    table = columns("word", "cosine", right=("cosine",))
    for word, score in nearest:
        table.add_row(Text(word), f"{score:.4f}")
    console.print(table)
    closing(console, None, f"clozeworks vectors similar {shlex.quote(path)} {shlex.quote(nearest[0][0])}")


def _look_up(vectors: Vectors, word: str) -> str | np.ndarray:
    """A word, or the direction of one that has n-grams only."""
    if word in vectors or not vectors.more:
        return word
    from clozeworks.vectors.search import unit
    from clozeworks.vectors.subwords import vector_of

    return unit(vector_of(vectors, word))[0]


def _fold(vectors: Vectors, word: str) -> str:
    """A word as the vectors have it: vectors of lower-cased text know no capitals."""
    plain = vectors.more and not any(each != each.lower() for each in vectors.words)
    return word.lower() if word not in vectors and (plain or word.lower() in vectors) else word
