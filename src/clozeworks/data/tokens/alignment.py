"""Which characters a token stands for: how words and spans of a text find their tokens."""

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import tokenizers


class Alignment:
    """The tokens of many texts over their characters, all texts end to end.

    first[i] is the first character of token i that is no white space; where it has none, the next one in its text,
    because a space belongs to the word after it. last[i] is one past its last character that is no white space, never
    less than first[i]. A token that is part of a character covers all of it.
    """

    def __init__(self, texts: Sequence[str], encodings: Sequence[tokenizers.Encoding]):
        self.text = "".join(texts)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        self.bases = np.cumsum(sizes) - sizes
        self.counts = np.fromiter(map(len, encodings), np.int64, len(encodings))
        flat = itertools.chain.from_iterable(itertools.chain.from_iterable(one.offsets for one in encodings))
        total = int(self.counts.sum())
        begins, ends = np.fromiter(flat, np.int64, 2 * total).reshape(-1, 2).T + np.repeat(self.bases, self.counts)
        floor, ceiling = (np.repeat(border, self.counts) for border in (self.bases, self.bases + sizes - 1))
        at = np.arange(len(self.text))
        (space,) = classes_of(self.text, _is_space)
        after = np.minimum.accumulate(np.where(space, len(self.text), at)[::-1])[::-1]
        before = np.maximum.accumulate(np.where(space, -1, at))
        self.first = np.minimum(after[np.clip(begins, floor, ceiling)], ceiling) if total else begins
        self.last = np.maximum(before[np.clip(ends - 1, floor, ceiling)] + 1, self.first) if total else ends

    def words(self, borders: np.ndarray) -> np.ndarray:
        """The number of the word of each token's first character; `borders` marks the first character of each."""
        return np.cumsum(borders)[self.first]

    def split(self, borders: np.ndarray) -> int:
        """How many words begin inside a token; each counts once, however many tokens share its character."""
        number = np.cumsum(borders)
        torn = np.flatnonzero(number[np.maximum(self.last - 1, 0)] > number[self.first]) if len(self.first) else []
        if not len(torn):
            return 0
        depth = np.zeros(len(borders) + 1, np.int64)
        np.add.at(depth, self.first[torn] + 1, 1)
        np.add.at(depth, self.last[torn], -1)
        return int(np.count_nonzero(borders & (np.cumsum(depth)[:-1] > 0)))


def word_begins(text: str, words: Sequence[str]) -> list[int] | None:
    """Where each word begins in its text; None if the words do not join to it.

    White space around words does not count: it may be missing from the list, and a word of nothing else is none.
    """
    begins, at = [], 0
    for word in words:
        core = word.strip()
        if not core:
            continue
        while text[at : at + 1].isspace():
            at += 1
        if not text.startswith(core, at):
            return None
        begins.append(at)
        at += len(core)
    return begins if not text[at:].strip() else None


def classes_of(text: str, kinds: Callable[[str], tuple[bool, ...]]) -> np.ndarray:
    """What each character is: bool [kinds, characters]."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    highest = int(codes.max(initial=0))
    return _table(kinds, 0x3000 if highest < 0x3000 else 0x10000 if highest < 0x10000 else 0x110000)[:, codes]


@cache
def _table(kinds: Callable[[str], tuple[bool, ...]], size: int) -> np.ndarray:
    return np.array([kinds(chr(code)) for code in range(size)], bool).T.copy()


def _is_space(character: str) -> tuple[bool]:
    return (character.isspace(),)
