"""One look over all the text, in bounded memory and at the speed of reading.

How often each character occurs is counted exactly (a table of 9 MB), and nearly everything about characters is read
from that table in the end. Copies are exact up to KEPT different documents; beyond, they are counted among one in 2, 4,
8 ... of the texts, chosen by their hash, so all copies of a text are chosen or none. What is dear is done on a sample.
"""

import math
import unicodedata
from collections.abc import Iterator

import numpy as np

from clozeworks.core.characters import is_han
from clozeworks.data.checks.sample import Sample
from clozeworks.data.shards.units import key_of, text_of
from clozeworks.data.text.documents import Document

BATCH = 1 << 20  # characters counted at once
KEPT = 1 << 18  # documents remembered by their hash
LINES = 20_000  # different lines remembered
LINE = 12, 300  # characters in a line that is remembered
RUN = 30  # combining marks on one letter, more than any language has
HEAD = 200_000  # letters that decide the language, as `prepare` has it

_LEADING = np.array([0xC2, 0xC3], np.uint32)  # Â and Ã: the first byte of a letter, when UTF-8 is read as Windows-1252
_FOLLOWING = np.array([*range(0x80, 0xC0), *map(ord, "€™œŠŽƒ‚„…†‡ˆ‰‹‘’“”•–—˜š›žŸ")], np.uint32)
_SIGNS = ("锟斤拷", "烫烫烫", "屯屯屯")  # U+FFFD and unset memory, read as GBK
_APART = np.array([*map(ord, "¡¯°·»¿×÷")], np.uint32)  # they do come in rows
_MISREAD = "锛銆鐨鏄"  # what the most frequent characters of Chinese in UTF-8 look like in GBK; hardly a word has them


class Spread:
    """Numbers in bins that grow with them, eight to each doubling: quantiles within five percent."""

    def __init__(self) -> None:
        self.bins = [0] * (8 * 48)
        self.count = self.most = 0

    def add(self, number: int) -> None:
        self.bins[int(8 * math.log2(number + 1))] += 1
        self.count += 1
        self.most = max(self.most, number)

    def quantile(self, part: float) -> int:
        rest = part * self.count
        for index, count in enumerate(self.bins):
            rest -= count
            if count and rest <= 0:
                return min(round(2 ** ((index + 0.5) / 8)) - 1, self.most)
        return self.most

    def below(self, number: float) -> int:
        """How many are smaller."""
        return sum(self.bins[: int(8 * math.log2(number + 1))])


class Copies:
    """Documents by their hash, of one in `every` texts."""

    def __init__(self) -> None:
        self.every = 1
        self.keys: dict[int, int] = {}

    def add(self, key: int) -> None:
        if key % self.every:
            return
        self.keys[key] = self.keys.get(key, 0) + 1
        while len(self.keys) > KEPT:
            self.every *= 2
            self.keys = {key: count for key, count in self.keys.items() if key % self.every == 0}

    def share(self) -> float:
        seen = sum(self.keys.values())
        return (seen - len(self.keys)) / seen if seen else 0.0


class Repeated:
    """Lines that many documents share. Where they are too many to remember, the rarest are forgotten."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._floor = 0

    def add(self, text: str) -> None:
        least, most = LINE
        for line in set(text.split("\n")):
            if least <= len(line) <= most:
                self.lines[line] = self.lines.get(line, self._floor) + 1
        if len(self.lines) > LINES:
            self._floor += 1
            self.lines = {line: count for line, count in self.lines.items() if count > self._floor + 1}

    def most_frequent(self, least: int) -> list[tuple[str, int]]:
        """Lines of at least so many documents, those with most text first."""
        frequent = [(line, count) for line, count in self.lines.items() if count - self._floor >= least]
        return sorted(frequent, key=lambda pair: -pair[1] * len(pair[0]))


class Sides:
    """Two-sided rows: how long one side is beside the other."""

    def __init__(self) -> None:
        self.ratios = Spread()
        self.same = 0

    def add(self, first: str, second: str) -> None:
        self.ratios.add(round(1000 * len(first) / max(1, len(second))))
        self.same += first == second

    def absurd(self) -> int:
        """Rows whose sides differ five times as much as usual, or more."""
        usual = self.ratios.quantile(0.5)
        return self.ratios.below(usual / 5) + self.ratios.count - self.ratios.below(usual * 5)


class Survey:
    """Everything that the text of the documents shows."""

    def __init__(self, sample: Sample, pairs: bool = False):
        self.sample, self._pairs = sample, pairs
        self.counts = np.zeros(0x110000, np.int64)  # of each character
        self.lengths, self.copies, self.repeated, self.sides = Spread(), Copies(), Repeated(), Sides()
        self.characters = self.documents = self.mojibake = self.runs = self.longest_run = 0
        self.head_letters = self.head_han = 0
        self._marks = np.zeros(0x110000, np.uint8)  # 0: not asked yet, 1: no mark, 2: a combining mark
        self._batch: list[str] = []
        self._held = 0
        self._length = -1  # of the document that may continue
        self._key = 0

    def add(self, document: Document) -> None:
        """Count a document, or a part of one that is long."""
        text = text_of(document)
        key = key_of(document)[1]
        if document.part == 0:
            self._end()
            self._length, self._key = 0, key
            self.documents += 1
            if self._pairs and document.sentences and len(document.sentences) == 2:
                self.sides.add(*document.sentences)
            elif not self._pairs:
                self.repeated.add(text)
        else:
            self._key = hash((self._key, key))
        self._length += len(text)
        self.characters += len(text)
        self.sample.add(document, text, key)
        self._batch.append(text)
        self._held += len(text)
        if self._held >= BATCH or (self.head_letters <= HEAD and self._held >= HEAD):
            self._count()

    def finish(self) -> None:
        self._end()
        self._count()

    def _end(self) -> None:
        if self._length >= 0:
            self.lengths.add(self._length)
            self.copies.add(self._key)
        self._length = -1

    def _count(self) -> None:
        text = "\n".join(self._batch)
        self._batch, self._held = [], 0
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        counts = np.bincount(codes)
        self.counts[: len(counts)] += counts
        if self.head_letters <= HEAD:
            for character, count in characters(counts):
                if character.isalpha():
                    self.head_letters += count
                    self.head_han += count * is_han(character)
        if not text.isascii():
            self._look(text, codes, counts)

    def _look(self, text: str, codes: np.ndarray, counts: np.ndarray) -> None:
        self.mojibake += _misread_letters(codes) if counts[0x80:0x100].any() else 0
        self.mojibake += sum(text.count(sign) for sign in _SIGNS if counts[ord(sign[0]) :].any())
        present = np.flatnonzero(counts)
        for code in present[self._marks[present] == 0]:
            self._marks[code] = 1 + (unicodedata.combining(chr(code)) > 0)
        is_mark = self._marks[codes] == 2
        if is_mark.sum() > RUN:
            edges = np.flatnonzero(np.diff(is_mark, prepend=False, append=False))
            sizes = edges[1::2] - edges[::2]
            self.runs += int((sizes > RUN).sum())
            self.longest_run = max(self.longest_run, int(sizes.max(initial=0)))

    def han(self) -> int:
        return sum(count for character, count in characters(self.counts) if is_han(character))

    def misread(self) -> int:
        """Characters that Chinese has only when its UTF-8 was read as GBK."""
        return int(sum(self.counts[ord(character)] for character in _MISREAD))


def _misread_letters(codes: np.ndarray) -> int:
    """Places where UTF-8 was read as Windows-1252 (Ã©, â€™), or GB18030 as Latin-1 (ÖÐ¹ú: four in a row)."""
    places = np.flatnonzero((codes >= 0x80) & (codes <= 0xFF))
    places = places[places + 1 < len(codes)]
    first, second = codes[places], codes[places + 1]
    pairs = np.isin(first, _LEADING) & np.isin(second, _FOLLOWING) | (first == 0xE2) & (second == ord("€"))
    letters = places[~pairs & ~np.isin(first, _APART)]
    rows = letters[3:][letters[3:] - letters[:-3] == 3] if len(letters) > 3 else letters[:0]
    return int(pairs.sum()) + len(rows)


def characters(counts: np.ndarray) -> Iterator[tuple[str, int]]:
    """The characters of a table, each with its count."""
    for code in np.flatnonzero(counts):
        yield chr(code), int(counts[code])
