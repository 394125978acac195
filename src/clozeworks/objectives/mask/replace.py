"""What stands in the place of a masked token."""

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clozeworks.core.bounds import Share
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import Vocabulary
from clozeworks.core.spec import Spec

FATE, TOKEN = 24, 40  # of 64 random bits: the upper ones decide what happens, the lower ones which token


@dataclass(slots=True)
class Replace(Spec):
    """80 % the mask token, 10 % a random token, 10 % left as it is (Devlin et al. 2018, 3.1).

    `source` tells where the random token comes from: the whole vocabulary, special tokens too (BERT), the ordinary
    tokens only (RoBERTa), or the corpus, each token as often as it occurs there (SpanBERT). `per` tells what shares one
    fate: each token has its own, or all masked tokens that stand side by side share one (a span is masked, random or
    kept as a whole; its random tokens are still drawn one by one).
    """

    mask: Share = 0.8
    random: Share = 0.1
    source: Literal["vocabulary", "ordinary", "corpus"] = "vocabulary"
    per: Literal["token", "span"] = "token"

    def check(self, where: str) -> None:
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1 + 1e-9:
            needed = "two shares, together at most 1, are needed"
            raise RecipeError(where, f"mask {self.mask}, random {self.random}", needed, "use 0.8 and 0.1")

    def draw(
        self, tokens: np.ndarray, bits: np.ndarray, vocabulary: Vocabulary, leader: np.ndarray | None = None
    ) -> np.ndarray:
        """New tokens for hidden ones. bits: 64 random ones a token; leader: the token whose fate each one shares."""
        fate = bits >> np.uint64(TOKEN)
        fate = fate if leader is None else fate[leader]
        masked, random = (np.uint64(round(share * 2**FATE)) for share in (self.mask, self.mask + self.random))
        out = np.where(fate < masked, np.int32(vocabulary.mask), tokens)
        at = np.flatnonzero((fate >= masked) & (fate < random))
        out[at] = self._random(bits[at] & np.uint64((1 << TOKEN) - 1), vocabulary)
        return out

    def _random(self, bits: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """Random tokens from numbers below 2**TOKEN."""
        if self.source == "vocabulary":
            return _below(vocabulary.size, bits)
        if self.source == "ordinary":
            ordinary = _ordinary(vocabulary.size, vocabulary.special)
            return ordinary[_below(len(ordinary), bits)]
        return np.searchsorted(_cumulative(vocabulary), bits * 2.0**-TOKEN, side="right")


def _below(limit: int, bits: np.ndarray) -> np.ndarray:
    return (bits * np.uint64(limit)) >> np.uint64(TOKEN)


@functools.lru_cache(8)
def _ordinary(size: int, special: tuple[int, ...]) -> np.ndarray:
    return np.setdiff1d(np.arange(size, dtype=np.int32), special)


_last: tuple[np.ndarray, np.ndarray] | None = None  # the counts seen last, and their cumulative shares


def _cumulative(vocabulary: Vocabulary) -> np.ndarray:
    """[size]: the share of the corpus that each token and those before it make up."""
    global _last
    counts = vocabulary.counts
    if counts is None or not counts.any():
        needed = "the token counts of the corpus are needed"
        raise InputError("replace.source", "corpus", needed, 'use "vocabulary" or "ordinary"')
    last = _last
    if last is None or last[0] is not counts:
        total = np.cumsum(counts, dtype=np.float64)
        last = _last = counts, total / total[-1]
    return last[1]
