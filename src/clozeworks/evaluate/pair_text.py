"""Pairs of sentences that were never prepared, as a text to make examples of."""

from collections.abc import Sequence

import numpy as np

from clozeworks.core.examples import Columns, ragged_arange
from clozeworks.data.tokens.tokenizer import Tokenizer

Pair = tuple[str, str]


class PairText:
    """A corpus in memory: documents of two sentences."""

    def __init__(self, tokenizer: Tokenizer, pairs: Sequence[Pair]):
        found = tokenizer.encode([side for pair in pairs for side in pair])
        self.tokens = np.concatenate([one.ids for one in found])
        self.word_starts = np.concatenate([one.word_starts for one in found])
        self.sentences = np.concatenate([[0], np.cumsum([len(one.ids) for one in found])]).astype(np.int64)
        self.documents = np.arange(0, len(found) + 1, 2)

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        return Columns(self.tokens[at], self.word_starts[at])
