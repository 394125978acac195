"""ROUGE: how much of a reference an answer has (Lin 2004)."""

import functools
import re
from collections import Counter
from collections.abc import Sequence

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
NAMES = ("rouge1", "rouge2", "rougeL")
WORD = re.compile(f"[{HAN}]|[^\\W_{HAN}]+")


def rouge(texts: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """F1 of words (rouge1), of pairs of words (rouge2) and of the longest common subsequence (rougeL), each a mean over
    texts with one reference each.

    No stemming. A word is a run of letters and digits, whatever its case; a Chinese character is a word of its own. In
    text of a to z and digits these are the scores of the package rouge-score, which takes every other letter for a
    space.
    """
    pairs = [_of_one(one, other) for one, other in zip(texts, wanted, strict=True)]
    return {name: sum(each[at] for each in pairs) / max(len(pairs), 1) for at, name in enumerate(NAMES)}


@functools.lru_cache(1 << 16)  # resampled rows come again and again
def _of_one(text: str, wanted: str) -> tuple[float, float, float]:
    a, b = words(text), words(wanted)
    return _overlap(a, b, 1), _overlap(a, b, 2), _f1(_common(a, b), len(a), len(b))


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _overlap(text_words: list[str], wanted: list[str], size: int) -> float:
    grams = [Counter(zip(*(text[at:] for at in range(size)), strict=False)) for text in (text_words, wanted)]
    return _f1((grams[0] & grams[1]).total(), *(one.total() for one in grams))


def _common(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence, a row of the table at a time."""
    row = [0] * (len(b) + 1)
    for one in a:
        before = row
        row = [0]
        for at, other in enumerate(b):
            row.append(before[at] + 1 if one == other else max(before[at + 1], row[at]))
    return row[-1]


def _f1(common: int, size: int, wanted: int) -> float:
    return 2 * common / (size + wanted) if common else 0.0
