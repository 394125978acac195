"""Vectors whose products tell how often two words stand near each other (Pennington, Socher & Manning 2014, GloVe).

    J = sum over pairs of f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)**2,    f(x) = min(1, (x / x_max)**alpha)

X_ij is the sum of 1 / distance, see `cooccur`. AdaGrad, pair by pair in random order; the time of an epoch grows with
the number of pairs, not with the text. As in the authors' program: squares begin at 1, the factor 2 of the gradient is
dropped, its components are cut at 100 and taken times the rate before they are squared, and biases step without the
rate. Unlike it, numbers are float32, the order changes with the epoch, and (i, j) and (j, i) are fitted one after the
other, their logarithm taken once.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.vectors.column import Folder
from clozeworks.vectors.cooccur import BLOCK, MEMORY, Pairs, count
from clozeworks.vectors.phrases import Phrases
from clozeworks.vectors.reading import read_vocabulary
from clozeworks.vectors.table import Vectors
from clozeworks.vectors.threads import cores, threads_of
from clozeworks.vectors.words import Progress, Words

CLIP = 100.0
RARE = 100  # words whose mean stands for those that have no vector
UNKNOWN = "<unk>"


@dataclass(slots=True)
class Fit:
    """The numbers that are learned: a row for each word and for each context, D numbers and a bias, with the sums of
    their squared gradients."""

    words: np.ndarray  # [V, D + 1]
    contexts: np.ndarray
    word_squares: np.ndarray
    context_squares: np.ndarray

    @staticmethod
    def begin(vocab: int, dim: int, seed: int, dtype: Any = np.float32) -> "Fit":
        """Uniform in (-.5, .5) / D, biases too; squares of 1."""
        rng = np.random.default_rng(seed)
        sides = [((rng.random((vocab, dim + 1)) - 0.5) / dim).astype(dtype) for _ in range(2)]
        return Fit(sides[0], sides[1], *(np.ones_like(side) for side in sides))

    def epoch(
        self,
        pairs: Pairs,
        rate: float = 0.05,
        x_max: float = 100.0,
        alpha: float = 0.75,
        workers: int = 1,
        order: np.random.Generator | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> float:
        """Every pair once, block by block, in a new order unless `order` is None; the mean loss of a pair.

        Several threads write into the same rows without waiting for each other; with one the result is exact.
        """
        from clozeworks.vectors.kernels.pairs import fit_pairs

        dtype, dim = self.words.dtype.type, self.words.shape[1] - 1
        rows = (self.words.reshape(-1), self.contexts.reshape(-1))
        squares = (self.word_squares.reshape(-1), self.context_squares.reshape(-1))
        settings = dim, dtype(rate), dtype(CLIP), dtype(x_max), dtype(alpha)
        starts = np.arange(0, len(pairs), BLOCK)
        loss, done = 0.0, 0

        def fit(first: np.ndarray, second: np.ndarray, values: np.ndarray) -> float:
            return fit_pairs(first, second, values, pairs.both, *rows, *squares, *settings)

        with ThreadPoolExecutor(workers) as threads:
            for start in starts if order is None else order.permutation(starts):
                columns = [np.asarray(each[start : start + BLOCK]) for each in (pairs.first, pairs.second)]
                columns.append(np.asarray(pairs.values[start : start + BLOCK], dtype))
                if order is not None:
                    turn = order.permutation(len(columns[0]))
                    columns = [column[turn] for column in columns]
                shares = [np.array_split(column, workers) for column in columns]
                loss += sum(map(fit, *shares) if workers == 1 else threads.map(fit, *shares))
                done += len(columns[0])
                if progress:
                    progress(done)
        same = int((pairs.first == pairs.second).sum()) if pairs.both else 0
        return loss / (2 * len(pairs) - same if pairs.both else len(pairs))


def least_squares(
    source: Any,
    *,
    dim: int = 100,
    window: int = 15,
    both: bool = True,
    x_max: float = 100.0,
    alpha: float = 0.75,
    rate: float = 0.05,
    epochs: int = 25,
    min_count: int = 5,
    max_words: int | None = None,
    phrases: Phrases | None = None,
    keep: Literal["sum", "words"] = "sum",
    unknown: bool = True,
    workers: int | None = None,
    deterministic: bool = False,
    seed: int = 0,
    memory: int = MEMORY,
    folder: Folder = None,
    progress: Progress | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
    **reading: Any,
) -> Vectors:
    """Vectors of a text: what `read_words` reads, or lists of words.

    The vector of a word is w + w~, or with `keep` = words w alone, and w~ is the vectors' `output`. `unknown` adds one
    for words that have none, the mean of the hundred rarest. `deterministic` uses one thread and gives the same bytes
    each time. `on_epoch` is called with each epoch's number and mean loss.
    """
    for name, value in {"dim": dim, "epochs": epochs, "rate": rate, "x_max": x_max, "alpha": alpha}.items():
        if not value > 0:
            raise InputError(name, value, "a number above 0 is needed", "leave it out for the usual one")
    workers = threads_of(workers, deterministic) or cores()
    vocabulary = {"min_count": min_count, "max_words": max_words, "phrases": phrases, "folder": folder}
    words = read_vocabulary(source, **vocabulary, progress=progress, **reading)
    if len(words) < 2:
        given, needed = f"one word, {words.words[0]}", "a vector tells words apart, so two are needed"
        raise InputError("text", given, needed, "give more text, or a smaller min_count")
    pairs = count(words, window, both, memory=memory, folder=folder, seed=seed, progress=progress)
    fit, order = Fit.begin(len(words), dim, seed), np.random.default_rng((seed, 1))
    losses: list[float] = []
    for epoch in range(1, epochs + 1):

        def done(some: int, before: int = (epoch - 1) * len(pairs)) -> None:
            if progress:
                progress("fit", before + some, epochs * len(pairs))

        losses.append(fit.epoch(pairs, rate, x_max, alpha, workers, order, done))
        if not np.isfinite(losses[-1]):
            todo = "use a smaller one; 0.05 is usual"
            raise InputError("rate", rate, f"the loss is no longer a number in epoch {epoch}", todo)
        if on_epoch:
            on_epoch(epoch, losses[-1])
    about = {"method": "glove", "dim": dim, "window": window, "both": both, "x_max": x_max, "alpha": alpha}
    about |= {"rate": rate, "epochs": epochs, "min_count": min_count, "seed": seed, "losses": losses}
    return vectors_of(fit, words, keep, unknown, {**about, "pairs": len(pairs), "read": words.read})


def vectors_of(fit: Fit, words: Words, keep: Literal["sum", "words"], unknown: bool, about: dict[str, Any]) -> Vectors:
    """What was learned, without the biases."""
    names, counts = list(words.words), words.counts
    table, output = fit.words[:, :-1].astype(np.float32), fit.contexts[:, :-1].astype(np.float32)
    if unknown and UNKNOWN not in names:
        names.append(UNKNOWN)
        counts = np.append(counts, 0)
        table, output = (np.concatenate([side, side[-RARE:].mean(0, keepdims=True)]) for side in (table, output))
    if keep == "words":
        return Vectors(names, table, counts, output, about)
    return Vectors(names, table + output, counts, None, about)
