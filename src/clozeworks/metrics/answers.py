"""How near an answer's text is to the right ones: exact match and F1, as the scripts of SQuAD and CMRC 2018 count.

English (SQuAD 2.0, which counts 1.1 alike): case, ASCII punctuation, articles and white space do not matter; F1 is that
of two bags of words. Chinese (CMRC 2018): case and a list of marks do not matter; units are Han characters and words of
other scripts, and what two texts share is their longest common run of units. Of several right answers the nearest
counts; a question without one is answered by "". Where that script asks NLTK for words we split at white space and set
off what NLTK does most often: brackets, some marks, a comma that is in no number, a full stop at the end.
"""

import functools
import re
import string
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

Language = Literal["en", "zh"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_HAN = re.compile("[\u4e00-\u9fa5]")
_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_APART, _LAST = r"(?:[\u4e00-\u9fa5()\[\]{}<>;@#$%&?!\"—–]|\.\.+)", r"(?=\s*(?:[\u4e00-\u9fa5]|$))"
_UNITS = re.compile(rf"{_APART}|,(?!\d)|\.{_LAST}|(?:(?!{_APART}|,(?!\d)|\.{_LAST})\S)+")


def language_of(texts: Sequence[str]) -> Language:
    """Chinese where half of the letters are Han."""
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return "zh" if letters and 2 * sum(map(bool, map(_HAN.match, letters))) >= len(letters) else "en"


@functools.lru_cache(1 << 16)
def normal(text: str, language: Language = "en") -> str:
    """What is left of a text to compare."""
    if language == "zh":
        return text.lower().strip().translate(_MARKS)
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


@functools.lru_cache(1 << 16)
def units(text: str, language: Language = "en") -> tuple[str, ...]:
    """What F1 counts of a text."""
    text = normal(text, language)
    return tuple(text.split() if language == "en" else _UNITS.findall(text))


def exact(predicted: str, right: Sequence[str], language: Language = "en") -> float:
    """1 if a text is one of the right ones."""
    return float(any(normal(predicted, language) == normal(each, language) for each in _some(right, language)))


def f1(predicted: str, right: Sequence[str], language: Language = "en") -> float:
    """The harmonic mean of the shares that two texts have in common, with the nearest of the right ones."""
    return max(_f1(units(predicted, language), units(each, language), language) for each in _some(right, language))


def _some(right: Sequence[str], language: Language) -> list[str]:
    return [each for each in right if normal(each, language)] or [""]


def _f1(predicted: tuple[str, ...], right: tuple[str, ...], language: Language) -> float:
    if not predicted or not right:
        return float(predicted == right)
    if language == "zh":
        common = SequenceMatcher(None, predicted, right, autojunk=False).find_longest_match().size
    else:
        common = (Counter(predicted) & Counter(right)).total()
    return 2 * common / (len(predicted) + len(right))


def answer_metrics(
    predicted: Sequence[str], right: Sequence[Sequence[str]], language: Language | None = None
) -> dict[str, float]:
    """exact_match and f1 over all questions, and where some have an answer and some have none also over each kind.

    The language is that of the right answers unless it is given.
    """
    language = language or language_of([text for each in right for text in each])
    same = np.array([exact(text, each, language) for text, each in zip(predicted, right, strict=True)])
    near = np.array([f1(text, each, language) for text, each in zip(predicted, right, strict=True)])
    there = np.array([bool(each) for each in right], bool)
    metrics = {"exact_match": float(same.mean()), "f1": float(near.mean())}
    if there.any() and not there.all():
        for name, chosen in (("HasAns", there), ("NoAns", ~there)):
            metrics |= {f"{name}_exact": float(same[chosen].mean()), f"{name}_f1": float(near[chosen].mean())}
    return metrics


def best_threshold(margins: np.ndarray, answered: np.ndarray, silent: np.ndarray) -> float:
    """Above which margin to answer nothing, so that the sum of what is gained is highest.

    margins [n]: how much likelier no answer is than the best one; answered, silent [n]: what is gained by giving that
    one, and by giving none. It lies halfway between two margins; of several as good it is the lowest.
    """
    ways = np.argsort(margins, kind="stable")
    sorted_margins = margins[ways]
    gains = silent.sum() + np.concatenate([[0.0], np.cumsum((answered - silent)[ways])])
    cuts = np.concatenate([[sorted_margins[0] - 1], sorted_margins, [sorted_margins[-1] + 1]])
    possible = cuts[1:] > cuts[:-1]  # not between equals
    best = int(np.argmax(np.where(possible, gains, -np.inf)))
    return float((cuts[best] + cuts[best + 1]) / 2)
