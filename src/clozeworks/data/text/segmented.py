"""Text that comes in words already. Joined, the words are the sentence, character by character.

Chinese words join without spaces. Between two words that meet in letters or digits of other scripts a space is needed,
and it belongs to the word that follows: `["New", " York"]`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError
from clozeworks.data.records.wording import describe
from clozeworks.data.text.sentences import LONGEST, split_sentences
from clozeworks.data.tokens.alignment import word_begins


def spaced(words: Iterable[str]) -> list[str]:
    """The words with the spaces that joining them needs, each before the word that follows it."""
    result: list[str] = []
    for word in words:
        result.append(f" {word}" if result and _spells(result[-1][-1]) and _spells(word[0]) else word)
    return result


def joined(words: Iterable[str]) -> str:
    """The sentence of the words."""
    return "".join(spaced(words))


def _spells(character: str) -> bool:
    """A letter or digit of a script that divides words by spaces."""
    wide = is_han(character) or "\u3040" <= character <= "\u30ff" or "\uff00" <= character <= "\uffef"
    return character.isalnum() and not wide


def in_sentences(value: Any, name: str, where: Callable[[], str], tidy: Callable[[str], str]) -> list[list[str]]:
    """Sentences as lists of spaced words. `words` may be a string with spaces, a list, or a list of lists, one a
    sentence; `sentences` are a list of strings, each kept whole. Blank ones are left out, overlong ones divided.
    """
    if name == "sentences":
        lists: Sequence[Any] = [[sentence] for sentence in value] if isinstance(value, list | tuple) else value
    elif isinstance(value, str):
        lists = [value.split()]
    elif isinstance(value, list | tuple) and value and all(isinstance(words, list | tuple) for words in value):
        lists = value
    else:
        lists = [value]
    if not isinstance(lists, list | tuple) or not all(
        isinstance(words, list | tuple) and all(isinstance(word, str) for word in words) for words in lists
    ):
        needed = (
            "a list of strings, or of lists of them, is needed" if name == "words" else "a list of strings is needed"
        )
        raise InputError(
            where(), f"field {name!r} holds {describe(value)}", needed, "write one string a word or sentence"
        )
    found: list[list[str]] = []
    for words in lists:
        kept = [word for word in map(tidy, words) if word]
        if name == "sentences":
            found += [[word] for word in kept]
        elif kept:
            found += _divided(spaced(kept))
    return found


def words_of(text: str, words: Sequence[str]) -> tuple[list[list[str]], int] | None:
    """The words of each sentence of the text, white space before them included, and how many were across the border of
    two sentences and are divided there; None if the words do not join to the text."""
    begins = word_begins(text, words)
    if begins is None:
        return None
    cores = [core for word in words if (core := word.strip())]
    ends = [begin + len(core) for begin, core in zip(begins, cores, strict=True)]
    found: list[list[str]] = []
    divided = number = at = 0
    for sentence in split_sentences(text):
        first = text.index(sentence, at)
        at = first + len(sentence)
        own: list[str] = []
        while first < at:
            last = min(ends[number], at)
            own.append(text[first:last])
            first = last
            divided += ends[number] > last
            number += ends[number] == last
        found.append(own)
    return found, divided


def _divided(words: list[str]) -> list[list[str]]:
    """A sentence whose words make more than LONGEST characters, as several."""
    if sum(map(len, words)) <= LONGEST:
        return [words]
    found: list[list[str]] = [[]]
    size = 0
    for word in words:
        for begin in range(0, len(word), LONGEST):
            piece = word[begin : begin + LONGEST]
            if size + len(piece) > LONGEST and found[-1]:
                found.append([])
                size = 0
                piece = piece.lstrip() or piece
            found[-1].append(piece)
            size += len(piece)
    return found
