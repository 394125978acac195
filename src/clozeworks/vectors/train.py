"""Word vectors from text: skip-gram and CBOW, on every core or exactly repeatable on one.

The text passes as a stream of numbers in stretches of some thousand words. Each thread takes the next stretch and
changes the tables where it is, without locks (Hogwild: two threads seldom meet in a row, and a lost step is one of
millions). Draws and rate of a stretch depend on the seed and its place alone, so one thread gives the same bytes twice.
"""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.data.text.reader import Reading
from clozeworks.data.tokens.segmenters import Segmenter
from clozeworks.vectors.column import Folder
from clozeworks.vectors.kernels import windows
from clozeworks.vectors.kernels.arithmetic import padded_rows, unpadded
from clozeworks.vectors.kernels.huffman import Tree, tree_of
from clozeworks.vectors.kernels.noise import Alias, alias_of, cumulative, keep_thresholds
from clozeworks.vectors.phrases import Phrases
from clozeworks.vectors.reading import read_vocabulary
from clozeworks.vectors.subwords import BUCKETS, ROWS, Parts, Subwords, composed, parts_of
from clozeworks.vectors.table import Vectors
from clozeworks.vectors.threads import cores, threads_of
from clozeworks.vectors.words import Progress, Words

STRETCH = 10_000  # words that a thread takes at once: some milliseconds
LOWEST = 1e-4  # share of the rate that is left in the end


@dataclass(frozen=True, slots=True)
class Settings:
    """How vectors are trained.

    `negative` words are drawn against each; 0 with `hs`, which learns the way through a Huffman tree instead. `bags`
    predicts from the mean of a window (CBOW), otherwise from each of its words. `shared` draws once for a window.
    `subwords` makes words of their n-grams; each pair has draws of its own then.
    """

    dim: int = 100
    window: int = 5
    negative: int = 5
    hs: bool = False
    bags: bool = False
    sample: float = 1e-3
    epochs: int = 5
    rate: float = 0.025
    shared: bool = True
    workers: int | None = None  # threads; None: one a core
    seed: int = 0
    subwords: Subwords | None = None

    def __post_init__(self) -> None:
        for name in ("dim", "window", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "1 or more is needed", "leave it out for the usual")
        if self.negative < 0 or (self.negative == 0 and not self.hs):
            todo = "use 5, or --hs for hierarchical softmax"
            raise InputError("negative", self.negative, "1 or more words are drawn", todo)
        if self.hs and self.negative:
            needed = "hierarchical softmax draws none"
            raise InputError("negative", f"{self.negative} with hs", needed, "leave one of them out")
        if self.seed < 0:
            raise InputError("seed", self.seed, "0 or more is needed", "leave it out")
        if self.hs and self.subwords:
            raise InputError("subwords", "with hs", "words are drawn against them", "leave one of them out")
        if not 0 < self.rate < 10:
            raise InputError("rate", self.rate, "a number above 0 is needed", "0.025 is usual, 0.05 for cbow")
        threads_of(self.workers, False)

    @property
    def method(self) -> str:
        return "cbow" if self.bags else "skipgram"

    @property
    def threads(self) -> int:
        return self.workers or cores()


class TrainingOptions(TypedDict, total=False):
    """Options of `skipgram` and `cbow`: those of `Settings`, of the vocabulary, and of `read_words`."""

    dim: int
    window: int
    negative: int | None
    hs: bool
    sample: float
    epochs: int
    workers: int | None
    seed: int
    deterministic: bool
    subwords: Subwords | None
    min_count: int
    max_words: int | None
    phrases: Phrases | None
    lang: str | None
    lowercase: bool
    marks: bool
    segmenter: str | Segmenter | None
    reading: Reading | None
    processes: int | None
    engine: Literal["local", "ray"]
    folder: Folder
    progress: Progress | None


def skipgram(source: Any, *, rate: float = 0.025, shared: bool = True, **options: Unpack[TrainingOptions]) -> Vectors:
    """Vectors that predict, each by itself, the words around a word.

    `source` is text as `read_words` takes it (files, rows, lists of words), or Words. `deterministic` is one thread:
    the same text and seed give the same bytes. More options are those of `read_words`, such as `lang`.
    """
    return _train_on(source, options, bags=False, rate=rate, shared=shared)


def cbow(source: Any, *, rate: float = 0.05, **options: Unpack[TrainingOptions]) -> Vectors:
    """Vectors whose mean over a window predicts the word in its middle; otherwise as `skipgram`."""
    return _train_on(source, options, bags=True, rate=rate)


def _train_on(source: Any, options: TrainingOptions, **method: Any) -> Vectors:
    """Where nobody says how many, 5 words are drawn, and none beside a tree."""
    given: dict[str, Any] = {**options, **method}
    if given.get("negative") is None:
        given["negative"] = 0 if given.get("hs") else 5
    given["workers"] = threads_of(given.get("workers"), given.pop("deterministic", False))
    own = {field.name for field in dataclasses.fields(Settings)} & given.keys()
    settings = Settings(**{name: given.pop(name) for name in own})
    return train(read_vocabulary(source, **given), settings, given.get("progress"))


def train(words: Words, settings: Settings, progress: Progress | None = None) -> Vectors:
    """Train on a stream; the result has in `about` the settings, the loss of each epoch and the words a second."""
    check(words)
    words = dataclasses.replace(words, ends=cut(words.ends, windows.LONGEST))
    parts = None if settings.subwords is None else parts_of(words.words, settings.subwords)
    inputs, outputs = fresh(words, settings, parts)
    run = Run(words, settings, inputs, outputs, progress, parts)
    losses, seconds = run.epochs()
    about = {
        "method": settings.method,
        "settings": asdict(settings),
        "words": words.read,
        "kept_words": len(words.ids),
        "losses": losses,
        "words_per_second": round(len(words.ids) * settings.epochs / max(seconds, 1e-9)),
        "seconds": round(seconds, 3),
    }
    if not np.isfinite(inputs.sum(dtype=np.float64) + outputs.sum(dtype=np.float64)):
        raise InputError("rate", settings.rate, "training went out of bounds with it", "try a lower one")
    table, output, more = unpadded(inputs, settings.dim), unpadded(outputs, settings.dim), {}
    if parts is not None:
        table, more = composed(table, parts), {BUCKETS: parts.buckets, ROWS: table[len(words) :]}
    return Vectors(words.words, table, counts=words.counts, output=output, about=about, more=more)


def cut(ends: np.ndarray, most: int) -> np.ndarray:
    """Where sentences end if none is longer than that: the kernels place no window over the borders of such pieces, and
    threads and rates change between sentences."""
    lengths = np.diff(ends, prepend=0)
    if not len(ends) or lengths.max() <= most:
        return ends
    pieces = -(-lengths // most)
    begins = np.repeat(ends - lengths, pieces)
    number = np.arange(1, pieces.sum() + 1) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.minimum(begins + number * most, np.repeat(ends, pieces))


def check(words: Words) -> None:
    """Is there anything to learn?"""
    if len(words) < 2:
        given = f"one word, {words.words[0]!r}" if len(words) else "no word"
        raise InputError("text", given, "two different words are needed", "give more text or a lower min_count")
    if len(words.ids) == len(words.ends):
        todo = "give more text, or lists of words that are sentences"
        raise InputError("text", "no sentence of two words", "words that stand together are needed", todo)


def fresh(words: Words, settings: Settings, parts: Parts | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Tables to begin with: inputs within 1 / (2 sqrt(dim)) of nothing, outputs zero.

    The authors' program begins within 1 / (2 dim). On texts of some million words longer rows end as better ones.
    """
    inputs = padded_rows(len(words) + (0 if parts is None else len(parts.buckets)), settings.dim)
    rng = np.random.default_rng(settings.seed)
    for begin in range(0, len(inputs), 1 << 16):
        some = inputs[begin : begin + (1 << 16), : settings.dim]
        some[:] = (rng.random(some.shape, np.float32) - np.float32(0.5)) / np.float32(settings.dim**0.5)
    return inputs, padded_rows(len(words) - settings.hs, settings.dim)


class Run:
    """Stretches of a stream, trained on in turn."""

    def __init__(
        self,
        words: Words,
        settings: Settings,
        inputs: np.ndarray,
        outputs: np.ndarray,
        progress: Progress | None = None,
        parts: Parts | None = None,
    ):
        self.settings, self.words, self.progress = settings, words, progress
        self._step = stepper(words, settings, inputs, outputs, parts)
        marks = np.arange(STRETCH, len(words.ids), STRETCH)
        self._borders = np.unique([0, *np.searchsorted(words.ends, marks), len(words.ends)])

    def epochs(self) -> tuple[list[float], float]:
        """All of them: the mean loss of each, and the seconds."""
        begin = time.perf_counter()
        losses = [self._epoch(epoch) for epoch in range(self.settings.epochs)]
        return losses, time.perf_counter() - begin

    def _epoch(self, epoch: int) -> float:
        loss, groups, size = 0.0, 0, len(self.words.ids)
        with ThreadPoolExecutor(self.settings.threads) as pool:
            run = map if self.settings.threads == 1 else pool.map
            stretches = run(partial(self._work, epoch), range(len(self._borders) - 1))
            try:
                for last, (more, count, _) in zip(self._borders[1:], stretches, strict=True):
                    loss, groups = loss + more, groups + count
                    if self.progress:
                        done = int(self.words.ends[last - 1])
                        self.progress("train", done + epoch * size, size * self.settings.epochs)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return round(loss / max(groups, 1), 6)

    def _work(self, epoch: int, number: int) -> tuple[float, int, int]:
        """One stretch, at the rate of its first word."""
        first, last = int(self._borders[number]), int(self._borders[number + 1])
        done = (int(self.words.ends[first - 1]) if first else 0) + epoch * len(self.words.ids)
        rate = self.settings.rate * max(1 - done / (len(self.words.ids) * self.settings.epochs), LOWEST)
        seed = counter_rng.fold(self.settings.seed, epoch, number) | np.uint64(1)
        return self._step(first, last, np.float32(rate), np.uint64(seed))


def stepper(
    words: Words, settings: Settings, inputs: np.ndarray, outputs: np.ndarray, parts: Parts | None = None
) -> Callable[..., Any]:
    """From sentences, rate and seed to a pass over them."""
    keep = keep_thresholds(words.counts, settings.sample)
    noise = Alias(np.zeros(1, np.uint32), np.zeros(1, np.int32))
    tree, longest = Tree(np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.uint8)), 1
    if settings.hs:
        tree = tree_of(words.counts)
        longest = tree.longest
    else:
        noise = alias_of(cumulative(words.counts))
    ids, ends = np.asarray(words.ids), np.asarray(words.ends)  # a map is an array to the kernels
    if parts is None:
        kernel: Callable[..., Any] = windows.train
        more = ((*tree, longest), settings.window, settings.negative, settings.bags, settings.shared)
    else:
        kernel = windows.train_parts
        more = ((parts.starts, parts.rows, parts.most), settings.window, settings.negative, settings.bags)

    def step(first: int, last: int, rate: np.float32, seed: np.uint64) -> tuple[float, int, int]:
        return kernel(ids, ends, first, last, inputs, outputs, keep, tuple(noise), *more, rate, seed)

    return step
