"""A text cut into words, where nobody has done that before: for tags, which are given to words.

Words stand between spaces. A character of a script that is written without them is a word, and so is a mark at the edge
of one, or several alike: `(EU)...` is four words, `U.S.` and `1-0` are one each, `Ann's` is two.
"""

import re
from collections.abc import Callable, Collection

from clozeworks.data.tokens.given_words import is_wide
from clozeworks.data.tokens.word_borders import is_punctuation

Span = tuple[int, int]  # [begin, end) in characters
WHOLE = 0.95  # of given words that `cut` must leave as they are, to be how they were made

_RUN = re.compile(r"\S+")
_MARKS = re.compile(r"(.)\1*", re.DOTALL)
_SHORT = re.compile(r"[^\W\d_]\.|([^\W\d_]{1,3}\.){2,}")  # M. or U.S.: it ends with a point that belongs to it
_TAIL = re.compile(r"['’](s|m|d|re|ve|ll)\Z", re.IGNORECASE)  # what English writes into one with the word before it


def cut(text: str) -> list[Span]:
    """Where each word of a text begins and ends."""
    words: list[Span] = []
    for run in _RUN.finditer(text):
        begin = run.start()
        for at in range(run.start(), run.end()):
            if is_wide(text[at]):
                words += [*_parts(text, begin, at), (at, at + 1)]
                begin = at + 1
        words += _parts(text, begin, run.end())
    return words


def whole(word: str) -> bool:
    """Whether `cut` leaves it one word."""
    return len(word) == 1 or cut(word) == [(0, len(word))]


def _parts(text: str, begin: int, end: int) -> list[Span]:
    """The marks before a word, the word, what is written into one with it, the marks behind it."""
    first, last = begin, end
    while first < last and is_punctuation(text[first]) and not _TAIL.match(text, first, last):
        first += 1
    while last > first and is_punctuation(text[last - 1]) and not _SHORT.fullmatch(text, first, last):
        last -= 1
    tail = _TAIL.search(text, first, last)
    border = tail.start() if tail else last
    middle = [span for span in ((first, border), (border, last)) if span[0] < span[1]]
    return [*_marks(text, begin, first), *middle, *_marks(text, last, end)]


def _marks(text: str, begin: int, end: int) -> list[Span]:
    return [run.span() for run in _MARKS.finditer(text, begin, end)]


def characters(text: str) -> list[Span]:
    """Where each character that is no white space stands."""
    return [(at, at + 1) for at, character in enumerate(text) if not character.isspace()]


def between_spaces(text: str) -> list[Span]:
    return [run.span() for run in _RUN.finditer(text)]


CUTS: dict[str, Callable[[str], list[Span]]] = {"spaces": between_spaces, "words": cut, "characters": characters}


def guessed(words: Collection[str]) -> str:
    """The one of CUTS that would have made these words of their text."""
    if all(len(word) == 1 for word in words):
        return "characters"
    return "words" if sum(map(whole, words)) >= WHOLE * len(words) else "spaces"
