"""A language model of counts, to measure others by: interpolated Kneser-Ney of any order (Chen & Goodman 1999).

    p(w | h) = max(c(h w) - d, 0) / c(h)  +  d N(h) / c(h)  p(w | h without its first word)

c are counts for the longest history; for shorter ones, in how many different ways an n-gram is continued to the left.
N(h) is how many words follow h, d = n1 / (n1 + 2 n2) of each order, from how many n-grams there are once and twice.
Below single words are all V, each as likely. Every word of the text but the first is predicted, from what there is.

    python -m studies.ngrams DATA [--order 3]
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.objectives.segments.line import Line


@dataclass(frozen=True, slots=True)
class Order:
    """The n-grams of one length: their codes, sorted, with counts; of each history, its sum and how many follow it."""

    codes: np.ndarray  # int64 [n]: the code of the history times V plus the word
    counts: np.ndarray
    histories: np.ndarray
    sums: np.ndarray
    followers: np.ndarray
    discount: float


class KneserNey:
    def __init__(self, tokens: np.ndarray, vocab: int, order: int = 3):
        if order < 1 or vocab**order >= 1 << 62:
            raise InputError("order", order, f"{vocab:,} words to that power are counted in 62 bits", "use 3")
        if len(tokens) < order:
            raise InputError("text", f"{len(tokens)} words", f"{order} or more are needed", "give more text")
        self.vocab, self.order = vocab, order
        codes, counts = np.unique(coded(tokens, order, vocab), return_counts=True)
        self.orders = [_order(codes, counts, vocab)]
        for length in range(order - 1, 0, -1):  # how many different words stand before each shorter one
            codes, counts = np.unique(codes % vocab**length, return_counts=True)
            self.orders.append(_order(codes, counts, vocab))
        self.orders.reverse()

    def chances(self, tokens: np.ndarray) -> np.ndarray:
        """[n - 1]: of each word but the first, after up to order - 1 words before it."""
        chance = np.full(len(tokens) - 1, 1 / self.vocab)
        for length, order in enumerate(self.orders, 1):
            if len(tokens) < length:
                break
            codes = coded(tokens, length, self.vocab)[max(2 - length, 0) :]
            skipped = len(chance) - len(codes)
            chance[skipped:] = _mixed(order, codes, self.vocab, chance[skipped:])
        return chance

    def perplexity(self, tokens: np.ndarray) -> float:
        return math.exp(-float(np.log(self.chances(tokens)).mean()))


def coded(tokens: np.ndarray, length: int, vocab: int) -> np.ndarray:
    """Each n-gram of a text as one number."""
    code, size = np.zeros(len(tokens) - length + 1, np.int64), len(tokens)
    for at in range(length):
        code = code * vocab + tokens[at : size - length + 1 + at]
    return code


def _order(codes: np.ndarray, counts: np.ndarray, vocab: int) -> Order:
    histories, first, followers = np.unique(codes // vocab, return_index=True, return_counts=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once else 0.5
    return Order(codes, counts, histories, np.add.reduceat(counts, first), followers, discount)


def _mixed(order: Order, codes: np.ndarray, vocab: int, below: np.ndarray) -> np.ndarray:
    """The chance of each n-gram's word, given that after the shorter history."""
    at = np.searchsorted(order.codes, codes).clip(max=len(order.codes) - 1)
    count = np.where(order.codes[at] == codes, order.counts[at], 0)
    history = codes // vocab
    place = np.searchsorted(order.histories, history).clip(max=len(order.histories) - 1)
    known = order.histories[place] == history
    total, follow = order.sums[place], order.followers[place]
    mixed = (np.maximum(count - order.discount, 0) + order.discount * follow * below) / total
    return np.where(known, mixed, below)


def line_of(corpus: Corpus, sep: int) -> np.ndarray:
    """The text as a model in streams reads it: the documents end to end, a separator behind each."""
    line = Line.of(corpus)
    pieces = [np.append(corpus.take(np.array([a]), np.array([b])).tokens, sep)
              for a, b in zip(line.borders, line.borders[1:], strict=False)]  # fmt: skip
    return np.concatenate(pieces).astype(np.int64)


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, reported in one sentence."""
    parser = argparse.ArgumentParser(description="Perplexity of held-out text under a model of counts")
    parser.add_argument("data", type=Path, help="a prepared directory")
    parser.add_argument("--order", type=int, default=3, help="words of the longest n-gram (3)")
    given = parser.parse_args(words)
    try:
        splits = [Corpus.open(given.data, split) for split in ("train", "heldout")]
        vocabulary = Tokenizer.load(given.data).vocabulary()
        text, unseen = (line_of(split, vocabulary.sep) for split in splits)
        sides = {"before": (text, unseen), "behind": (text[::-1], unseen[::-1])}
        scores = {name: KneserNey(a, vocabulary.size, given.order).perplexity(b) for name, (a, b) in sides.items()}
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.order}-grams of {len(text):,} words, perplexity of {len(unseen) - 1:,} others:")
    for name, value in scores.items():
        print(f"  from the words {name} each  {value:.1f}")
    print(f"  both, as one mean  {math.sqrt(math.prod(scores.values())):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
