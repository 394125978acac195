"""Toy sides and contexts, built by hand, for tests of parts."""

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.context import Context
from clozeworks.core.examples import Columns, Vocabulary, ragged_arange
from clozeworks.core.token_info import PADDING, DocumentLayout, Kind, TokenInfo


def packed(lengths: list[list[int]], width: int, kind: Kind = "full", **more) -> Context:
    """Rows of documents of these lengths, padded to `width`."""
    position = torch.zeros(len(lengths), width, dtype=torch.long)
    document = torch.full((len(lengths), width), PADDING)
    starts, sizes, number = [], [], 0
    for row, documents in enumerate(lengths):
        at = 0
        for length in documents:
            position[row, at : at + length] = torch.arange(length)
            document[row, at : at + length] = number
            starts.append(row * width + at)
            sizes.append(length)
            at, number = at + length, number + 1
        if at < width:
            position[row, at:] = torch.arange(width - at)
            starts.append(row * width + at)
            sizes.append(width - at)
    side = TokenInfo.make(position, document, kind)
    return Context.make(
        side, side, kind, layout=DocumentLayout(tuple(starts), tuple(sizes), len(lengths), width), **more
    )


def batch_of(context: Context, tokens: Tensor) -> Batch:
    assert context.layout is not None
    return Batch(tokens, context.query, context.kind, context.layout, torch.zeros(1, dtype=torch.long))


class Text:
    """A corpus in memory: random tokens in documents of random sentences."""

    def __init__(self, sentence_lengths: list[list[int]], vocab: int = 1000, seed: int = 0):
        lengths = [length for document in sentence_lengths for length in document]
        self.sentences = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        self.documents = np.concatenate([[0], np.cumsum([len(d) for d in sentence_lengths])]).astype(np.int64)
        generator = np.random.default_rng(seed)
        self.tokens = generator.integers(5, vocab, self.sentences[-1]).astype(np.int32)
        self.word_starts = generator.random(len(self.tokens)) < 0.7
        self.units: np.ndarray | None = None

    @staticmethod
    def random(documents: int = 400, most_sentences: int = 25, seed: int = 5) -> "Text":
        generator = np.random.default_rng(seed)
        return Text(
            [
                generator.integers(4, 40, generator.integers(1, most_sentences)).tolist()  # tokens of each sentence
                for _ in range(documents)
            ]
        )

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        at = ragged_arange(starts, ends - starts)
        return Columns(self.tokens[at], self.word_starts[at], None if self.units is None else self.units[at])

    def document_of(self, offset: np.ndarray) -> np.ndarray:
        sentence = np.searchsorted(self.sentences, offset, side="right") - 1
        return np.searchsorted(self.documents, sentence, side="right") - 1


VOCABULARY = Vocabulary(1000, pad=0, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
