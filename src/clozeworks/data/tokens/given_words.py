"""Pieces of words that were separated before: each word is tokenised as it would be at its place in the text.

A space belongs to the word after it (byte-level BPE, SentencePiece), or is a token of its own, or is none: what a word
gives depends on what stands before it. So it is encoded behind an anchor, a letter or a mark, and the anchor cut off.
Nothing crosses the borders of words, so that every word has pieces of its own. Each distinct word is encoded once.

Texts of Chinese, Japanese and the like have no spaces, and their words, or characters, get none: neither beside such a
character, nor between single characters of a row that has one (1 9 9 8 年).
"""

import itertools
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from clozeworks.data.tokens.tokenizer import Tokenizer

Before = Literal["nothing", "space", "glue"]  # what stands before a word
ANCHORS: dict[Before, tuple[str, ...]] = {"nothing": ("",), "space": ("a ", ""), "glue": (".", "a", "")}


class Pieces(NamedTuple):
    """Of one word, never none: what the tokenizer drops, control characters for one, is unknown."""

    ids: list[int]
    lead: int  # which piece is the first with something of the word in it; those before it are its space


def pieces(tokenizer: Tokenizer, rows: Sequence[Sequence[str]]) -> list[list[Pieces]]:
    """Of each word of each row."""
    wanted = [list(zip(spacing(words), words, strict=True)) for words in rows]
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(wanted)))
    known: dict[tuple[Before, str], Pieces] = {}
    for attempt in range(max(map(len, ANCHORS.values()))):
        open_ = [(key, ANCHORS[key[0]][attempt]) for key in distinct if key not in known]
        encoded = tokenizer.encodings([anchor + word for (_, word), anchor in open_])
        for (key, anchor), one in zip(open_, encoded, strict=True):
            behind = _behind(one.ids, one.offsets, anchor, key[1])
            if behind is not None:
                known[key] = behind if behind.ids else Pieces([_unknown(tokenizer)], 0)
    return [[known[key] for key in row] for row in wanted]


def _behind(ids: list[int], offsets: list[tuple[int, int]], anchor: str, word: str) -> Pieces | None:
    """What is left of an encoding without its anchor; None where a piece holds something of both."""
    border, text = len(anchor.rstrip()), anchor + word
    mine = [at for at, (start, _) in enumerate(offsets) if start >= border]
    if mine != list(range(len(ids) - len(mine), len(ids))) or any(
        end > len(anchor) for _, end in offsets[: len(ids) - len(mine)]
    ):
        return None
    words = (n for n, at in enumerate(mine) if text[slice(*offsets[at])].strip())
    return Pieces([ids[at] for at in mine], next(words, 0))


def _unknown(tokenizer: Tokenizer) -> int:
    return next((index for index in (tokenizer.unk, tokenizer.mask) if index is not None), tokenizer.need("sep"))


def spacing(words: Sequence[str]) -> list[Before]:
    """What stands before each word of a row."""
    wide = [(is_wide(word[:1]), is_wide(word[-1:])) for word in words]
    single = any(first or last for first, last in wide)
    before: list[Before] = ["nothing"] if words else []
    for at in range(1, len(words)):
        alone = single and len(words[at - 1]) == 1 == len(words[at])
        before.append("glue" if wide[at - 1][1] or wide[at][0] or alone else "space")
    return before


def joined(words: Sequence[str]) -> str:
    """A text of them."""
    before = spacing(words)
    return "".join(" " + word if space == "space" else word for space, word in zip(before, words, strict=True))


@lru_cache(1 << 16)
def is_wide(character: str) -> bool:
    """Of a script that is written without spaces: wide, and neither Korean nor a picture."""
    return (
        character != ""
        and unicodedata.east_asian_width(character) in "WF"
        and unicodedata.category(character) != "So"
        and not unicodedata.name(character, "").startswith("HANGUL")
    )


def word_starts(words: Sequence[Pieces]) -> np.ndarray:
    """Of the pieces of some words, which are the first with something of their word."""
    starts = np.zeros(sum(len(word.ids) for word in words), bool)
    sizes = np.array([len(word.ids) for word in words], np.int64)
    starts[np.cumsum(sizes) - sizes + np.array([word.lead for word in words], np.int64)] = True
    return starts
