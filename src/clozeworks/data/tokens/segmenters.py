"""Chinese words from a segmenter: jieba, the spaces of a segmented text, or a function of the user's own.

A segmenter takes a sentence and gives its words. It decides word borders only, never tokens, so one that fails costs
the borders of that sentence and nothing else. What it prints goes to standard error: standard output is ours.
"""

import contextlib
import importlib.util
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, log
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any

from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError, suggest
from clozeworks.data.tokens.alignment import word_begins
from clozeworks.data.tokens.word_borders import HAN

Segmenter = Callable[[str], list[str]]

NAMES = ("jieba", "none", "spaces")
MESSAGES = 3  # how many are kept for the screen
TRIAL = 100  # sentences; a segmenter that raises on every one of them is broken
CLAUSES = 1 << 16  # different clauses remembered, and as many runs of single characters
LONGEST_CLAUSE = 24  # characters; longer ones hardly ever come again

_LOWEST = -1e300  # below the weight of any path
_WIDE = {ord(wide): ord(wide) - 0xFEE0 for wide in map(chr, range(0xFF01, 0xFF5F)) if wide.isalnum() or wide in "．％"}
_TWO_HAN = re.compile(f"[{HAN}][^{HAN}]*[{HAN}]")


def segmenter(name: str) -> Segmenter | None:
    """The segmenter of a name: `jieba`, `spaces`, `file.py:function`; None for `none`."""
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _FromFile(file, function)
    if name == "jieba":
        return _Jieba()
    if name == "spaces":
        return words_between_spaces
    if name == "none":
        return None
    needed = f"a segmenter is one of {', '.join(NAMES)}, or file.py:function"
    raise InputError("segmenter", repr(name), needed, suggest(name, NAMES))


def portable(given: Segmenter) -> bool:
    """Can it be handed to another process? A lambda, for one, cannot."""
    try:
        ForkingPickler.dumps(given)
    except Exception:  # whatever the object's own way of being copied raises
        return False
    return True


# ---- applying one


@dataclass(slots=True)
class Problems:
    """Sentences that fell back to the tokenizer's borders, by kind, and what the first few had to say."""

    counts: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def add(self, kind: str, message: str) -> None:
        self.counts[kind] += 1
        if len(self.messages) < MESSAGES:
            self.messages.append(message)


class Segmentation:
    """A segmenter at work on one corpus: it remembers whether the segmenter has ever answered."""

    def __init__(self, given: Segmenter):
        self._segmenter = given
        self._raised = 0
        self._answered = False

    def __call__(self, sentences: Sequence[str]) -> tuple[list[list[str] | None], Problems]:
        """The words of each sentence; None where it has fewer than two Chinese characters or the segmenter failed."""
        problems = Problems()
        with contextlib.redirect_stdout(sys.stderr):
            return [self._words(sentence, problems) for sentence in sentences], problems

    def _words(self, sentence: str, problems: Problems) -> list[str] | None:
        if not _TWO_HAN.search(sentence):
            return None
        shown = sentence if len(sentence) <= 20 else sentence[:20] + "…"
        try:
            given: Any = self._segmenter(sentence)
            words = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else given
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"
            self._raised += 1
            if not self._answered and self._raised >= TRIAL:
                given = f"{problem} on each of the first {TRIAL} sentences"
                raise InputError("segmenter", given, "it must give the words of a sentence", "mend it") from error
            problems.add("raised", f"{problem} (at {shown})")
            return None
        self._answered = True
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            problems.add("not a list", f"{type(given).__name__} instead of a list of words (at {shown})")
            return None
        if word_begins(sentence, words) is None:
            problems.add("does not join", f"the words do not join to the sentence (at {shown})")
            return None
        return words


def start_segmentation(given: str | Segmenter | None) -> Segmentation | None:
    """The segmenter of a name, or the given one, ready to work; None where there is none."""
    chosen = segmenter(given) if isinstance(given, str) else given
    return None if chosen is None else Segmentation(chosen)


# ---- text that is segmented already


def words_between_spaces(sentence: str) -> list[str]:
    """The words of a segmented sentence; they join to the text as it was before.

    The space is kept, with the word after it, between two words that are not Chinese.

    >>> words_between_spaces("我 喜欢 deep learning 模型")
    ['我', '喜欢', 'deep', ' learning', '模型']
    """
    words = sentence.split()
    for at in range(len(words) - 1, 0, -1):
        if not _is_chinese(words[at - 1][-1]) and not _is_chinese(words[at][0]):
            words[at] = " " + words[at]
    return words


def _is_chinese(character: str) -> bool:
    """Chinese, or a mark or letter that stands in Chinese text without a space beside it."""
    return (
        is_han(character)
        or "\u3000" <= character <= "\u312f"
        or "\uff00" <= character <= "\uffef"
        or character in "“”‘’…—·"
    )


# ---- jieba


class _Jieba:
    """The words of `jieba.lcut`, exactly, in less time: logarithms taken once, clauses that come again remembered.

    One departure: wide letters and digits (１９９８) are read as narrow ones, which jieba would take one by one.
    jieba keeps its dictionary in a cache file of a fixed name under /tmp, which any user of the machine may have
    written; ours is read from the package, so no file is written and none but its own is trusted.
    """

    def __init__(self):
        jieba = _import_jieba()
        own = jieba.Tokenizer()
        frequencies, total = own.gen_pfdict(own.get_dict_file())
        base = log(total)
        # the beginnings of words are in the dictionary too, with no count
        self._weights = {word: log(count) - base if count else -inf for word, count in frequencies.items()}
        self._unknown = log(1) - base
        self._blocks: re.Pattern[str] = jieba.re_han_default
        self._space: re.Pattern[str] = jieba.re_skip_default
        self._remembered = lru_cache(CLAUSES)(self._cut)
        self._unlisted = lru_cache(CLAUSES)(lambda run: tuple(jieba.finalseg.cut(run)))

    def __reduce__(self):
        return segmenter, ("jieba",)

    def __call__(self, sentence: str) -> list[str]:
        narrow = sentence.translate(_WIDE)
        if narrow == sentence:
            return self._words(sentence)
        ends = list(itertools.accumulate(map(len, self._words(narrow)), initial=0))
        return [sentence[begin:end] for begin, end in itertools.pairwise(ends)]

    def _words(self, sentence: str) -> list[str]:
        words: list[str] = []
        for number, piece in enumerate(self._blocks.split(sentence)):
            if number % 2:
                words += self._remembered(piece) if len(piece) <= LONGEST_CLAUSE else self._cut(piece)
            elif len(piece) == 1:
                words.append(piece)
            elif piece:
                for part in self._space.split(piece):
                    words += [part] if self._space.match(part) else part
        return words

    def _cut(self, clause: str) -> list[str]:
        """The most likely way through the dictionary; what it leaves single goes to the hidden Markov model."""
        words: list[str] = []
        at, single = 0, 0  # clause[single:at] are single characters that wait
        ends = self._path(clause)
        while at < len(clause):
            end = ends[at]
            if end - at > 1:
                self._add_singles(clause[single:at], words)
                words.append(clause[at:end])
                single = end
            at = end
        self._add_singles(clause[single:], words)
        return words

    def _path(self, clause: str) -> list[int]:
        """For each character, where the best word from there ends; of equals the longest, as in jieba."""
        weight, size = self._weights.get, len(clause)
        score, ends = [0.0] * (size + 1), [0] * size
        for begin in range(size - 1, -1, -1):
            end = begin + 1
            best, chosen = _LOWEST, end
            here = weight(clause[begin])
            while here is not None:
                total = here + score[end]
                if total >= best:
                    best, chosen = total, end
                end += 1
                if end > size:
                    break
                here = weight(clause[begin:end])
            score[begin] = best if best > _LOWEST else self._unknown + score[begin + 1]
            ends[begin] = chosen
        return ends

    def _add_singles(self, run: str, words: list[str]) -> None:
        if len(run) < 2 or self._weights.get(run, -inf) > -inf:
            words += run
        else:
            words += self._unlisted(run)


def _import_jieba() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks setuptools for what is deprecated
            import jieba
    except ImportError:
        needed = "the package jieba is needed"
        raise InputError("segmenter jieba", "not installed", needed, "pip install 'clozeworks[zh]'") from None
    return jieba


# ---- the user's own


class _FromFile:
    """A function of a Python file, loaded again in each process that it is handed to."""

    def __init__(self, file: str, function: str):
        self.file, self.function = str(Path(file).absolute()), function
        module = _module(file)
        chosen = getattr(module, function, None)
        if not callable(chosen):
            own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            todo = suggest(function, own) if own else "write it"
            raise InputError(file, repr(function), "it has no such function", todo)
        self._call: Callable[[str], Any] = chosen

    def __reduce__(self):
        return _FromFile, (self.file, self.function)

    def __call__(self, sentence: str) -> Any:
        return self._call(sentence)


def _module(file: str) -> ModuleType:
    path = Path(file)
    if not path.is_file():
        raise InputError(file, "no such file", "a Python file with a segmenter is needed", "check the path")
    name = re.sub(r"\W", "_", str(path.absolute()))
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(file, "not a Python file", "a file that ends in .py is needed", "check it")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with contextlib.redirect_stdout(sys.stderr):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            given = f"{type(error).__name__}: {error}"
            raise InputError(file, given, "it must run without an error", "mend it") from error
    return sys.modules[name]
