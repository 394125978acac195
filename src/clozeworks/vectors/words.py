"""A text as a stream of word ids, with the words, how often each stands in it, and where sentences end.

One pass over the text: words are numbered as they are met, and the stream is rewritten once it is known which of them
are frequent enough to stay. What is held in memory is the distinct words; a large stream lies in a file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.vectors.column import Column, Folder, pieces

Progress = Callable[[str, int, int], None]  # stage, done, in all

DISTINCT = 20_000_000  # words held while counting: about 2 GB; beyond them the rarest are forgotten, as they are met
BATCH_WORDS = 100_000  # of token lists numbered together


@dataclass(frozen=True, eq=False)
class Words:
    """Words by falling count, then by spelling; `ids` are the words of the text that stayed, sentence after sentence.

    Sentence n is ids[ends[n - 1] : ends[n]], never empty. `read` counts all words of the text, the rare ones too.
    """

    words: list[str]
    counts: np.ndarray  # int64 [words]
    ids: np.ndarray  # int32 [kept], in memory or mapped from disk
    ends: np.ndarray  # int64 [sentences]
    read: int

    def __len__(self) -> int:
        return len(self.words)

    def sentences(self) -> Iterator[list[str]]:
        begin = 0
        for end in self.ends.tolist():
            yield [self.words[index] for index in self.ids[begin:end].tolist()]
            begin = end

    def kept(self, min_count: int = 1, most: int | None = None, folder: Folder = None) -> "Words":
        """Without the words that stand in the text less than `min_count` times, and with at most so many."""
        _check(min_count, most)
        words, counts, rank = ranked(self.words, self.counts, min_count, most)
        if len(words) == len(self.words) and words == self.words:
            return self
        return Words(words, counts, *renumbered(self.ids, self.ends, rank, folder), self.read)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text: its own words in the order they are met, the stream as indices into them, sentence lengths."""

    words: list[str]
    ids: np.ndarray  # int32
    lengths: np.ndarray  # int32 [sentences]

    @staticmethod
    def of(sentences: Iterable[Sequence[str]]) -> "Part":
        number: dict[str, int] = {}
        ids: list[int] = []
        lengths: list[int] = []
        for sentence in sentences:
            ids += [number.setdefault(word, len(number)) for word in sentence]
            lengths.append(len(sentence))
        return Part(list(number), np.array(ids, np.int32), np.array(lengths, np.int32))


class Gathering:
    """Parts of a text put together, in order."""

    def __init__(self, folder: Folder = None, distinct: int = DISTINCT):
        self._folder, self._distinct = folder, distinct
        self._number: dict[str, int] = {}
        self._next = 0  # numbers are not used again when their word is forgotten
        self._counts = np.zeros(1 << 16, np.int64)
        self._floor = 1
        self._ids = Column(np.int32, folder)
        self._ends = Column(np.int64, folder)

    def add(self, part: Part) -> None:
        """Count the words of a part and append its stream; beyond `distinct` words the rarest are forgotten."""
        number = self._number
        table = np.empty(len(part.words), np.int32)
        for at, word in enumerate(part.words):
            known = number.get(word)
            if known is None:
                known = number[word] = self._next
                self._next += 1
            table[at] = known
        if self._next > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(max(self._next, len(self._counts)), np.int64)])
        np.add.at(self._counts, table, np.bincount(part.ids, minlength=len(table)))
        self._ends.append(self._ids.size + np.cumsum(part.lengths, dtype=np.int64))
        self._ids.append(table[part.ids])
        if len(number) > self._distinct:
            self._forget()

    def _forget(self) -> None:
        """Rare words go, and what is rare rises, until there is room again."""
        while len(self._number) > self._distinct:
            counts = self._counts
            self._number = {word: at for word, at in self._number.items() if counts[at] > self._floor}
            self._floor += 1

    def finish(self, where: object, min_count: int = 1, most: int | None = None) -> Words:
        """The words that are frequent enough; `where` the text came from, for a message."""
        _check(min_count, most)
        if self._ids.size == 0:
            raise InputError(where, "no word in it", "text is needed", "point at files with text")
        names, numbers = list(self._number), np.fromiter(self._number.values(), np.int64, len(self._number))
        words, counts, rank = ranked(names, self._counts[numbers], min_count, most)
        whole = np.full(self._next, -1, np.int32)
        whole[numbers] = rank
        if not words:
            given = f"none of {len(names):,} words comes {min_count:,} times"
            most_frequent = int(self._counts.max())
            todo = f"give more text or a min_count of {most_frequent:,} or less, as often as the most frequent comes"
            raise InputError(where, given, "a word that stays is needed", todo)
        return Words(
            words, counts, *renumbered(self._ids.array(), self._ends.array(), whole, self._folder), self._ids.size
        )


def gathered(
    sentences: Iterable[Sequence[str]],
    min_count: int = 1,
    most: int | None = None,
    folder: Folder = None,
    distinct: int = DISTINCT,
) -> Words:
    """The words of lists of words, one list a sentence, as they are; a generator will do."""
    gathering = Gathering(folder, distinct)
    batch: list[Sequence[str]] = []
    size = 0
    for at, sentence in enumerate(sentences, 1):
        if isinstance(sentence, str) or not isinstance(sentence, list | tuple):
            given = f"sentence {at} is one {type(sentence).__name__}"
            raise InputError("sentences", given, "a list of words is needed for each", "split it into words")
        if odd := [word for word in sentence if not isinstance(word, str)]:
            raise InputError("sentences", f"sentence {at} has {odd[0]!r}", "words are strings", "write str(word)")
        batch.append(sentence)
        size += len(sentence)
        if size >= BATCH_WORDS:
            gathering.add(Part.of(batch))
            batch, size = [], 0
    gathering.add(Part.of(batch))
    return gathering.finish("sentences", min_count, most)


def ranked(
    words: Sequence[str], counts: np.ndarray, min_count: int, most: int | None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The words that stay, by falling count and then by spelling, their counts, and of each given word its new
    number, -1 for one that goes."""
    frequent = np.flatnonzero(counts >= min_count)
    frequency = counts.tolist()
    order = sorted(frequent.tolist(), key=lambda at: (-frequency[at], words[at]))[:most]
    rank = np.full(len(words), -1, np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return [words[at] for at in order], counts[order].astype(np.int64), rank


def renumbered(
    ids: np.ndarray, ends: np.ndarray, rank: np.ndarray, folder: Folder = None
) -> tuple[np.ndarray, np.ndarray]:
    """A stream in new numbers, without what has none, and the ends of the sentences that are left."""
    kept, ended = Column(np.int32, folder), Column(np.int64, folder)
    sentence = last = 0
    for piece in pieces(len(ids)):
        fresh = rank[ids[piece]]
        stays = fresh >= 0
        until = int(np.searchsorted(ends, piece.stop, side="right"))
        reached = np.concatenate([[0], np.cumsum(stays)])[ends[sentence:until] - piece.start] + kept.size
        ended.append(reached[np.diff(reached, prepend=last) > 0])
        last = int(reached[-1]) if len(reached) else last
        sentence = until
        kept.append(fresh[stays])
    return kept.array(), ended.array()


def _check(min_count: int, most: int | None) -> None:
    if min_count < 1:
        raise InputError("min_count", min_count, "1 or more is needed", "5 is usual")
    if most is not None and most < 1:
        raise InputError("max_words", most, "1 or more is needed", "leave it out")
