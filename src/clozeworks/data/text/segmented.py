"""Text that comes in words already. Joined, the words are the sentence, character by character.

Chinese words join without spaces. Between two words that meet in letters or digits of other scripts a space is needed,
and it belongs to the word that follows: `["New", " York"]`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clozeworks.core.characters import is_wide
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


def _spells(character: str) -> bool:
    """A letter or digit of a script that divides words by spaces."""
    return character.isalnum() and not is_wide(character)


def in_sentences(value: Any, name: str, where: Callable[[], str], tidy: Callable[[str], str]) -> list[list[str]]:
    """Sentences as lists of spaced words. `words` may be a string with spaces, a list, or a list of lists, one a
    sentence; `sentences` are a list of strings, each kept whole. Blank ones are left out, overlong ones divided.
    """
    if name == "sentences":
        lists: Sequence[Any] = [[whole] for whole in value] if isinstance(value, list | tuple) else value
    elif isinstance(value, str):
        lists = [value.split()]
    elif isinstance(value, list | tuple) and value and all(isinstance(words, list | tuple) for words in value):
        lists = value
    else:
        lists = [value]
    if not isinstance(lists, list | tuple) or not all(map(_is_strings, lists)):
        needed = f"a list of strings{', or of lists of them,' if name == 'words' else ''} is needed"
        given = f"field {name!r} holds {describe(value)}"
        raise InputError(where(), given, needed, "write one string a word or sentence")
    sentences: list[list[str]] = []
    for words in lists:
        kept = [word for word in map(tidy, words) if word]
        if name == "sentences":
            sentences += [[word] for word in kept]
        elif kept:
            sentences += _divided(spaced(kept))
    return sentences


def _is_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def words_of(text: str, words: Sequence[str]) -> tuple[list[list[str]], int] | None:
    """The words of each sentence of the text, white space before them included, and how many were across the border of
    two sentences and are divided there; None if the words do not join to the text."""
    begins = word_begins(text, words)
    if begins is None:
        return None
    cores = [core for word in words if (core := word.strip())]
    ends = [begin + len(core) for begin, core in zip(begins, cores, strict=True)]
    sentences: list[list[str]] = []
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
        sentences.append(own)
    return sentences, divided


def _divided(words: list[str]) -> list[list[str]]:
    """A sentence whose words make more than LONGEST characters, as several."""
    if sum(map(len, words)) <= LONGEST:
        return [words]
    parts: list[list[str]] = [[]]
    size = 0
    for word in words:
        for begin in range(0, len(word), LONGEST):
            piece = word[begin : begin + LONGEST]
            if size + len(piece) > LONGEST and parts[-1]:
                parts.append([])
                size = 0
                piece = piece.lstrip() or piece
            parts[-1].append(piece)
            size += len(piece)
    return parts
