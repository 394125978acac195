"""What conformance is measured on: a text with its vocabulary, and the examples that parts make of it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clozeworks.core.examples import Columns, RaggedBatch, Vocabulary
from clozeworks.data.batches.rows import Source, concatenate
from clozeworks.objectives.mask.masking import Masking
from clozeworks.objectives.objective import Corruption, Segments

MOST = 20_000  # examples looked at in an epoch
CITED = {
    "MaskTokens": "BERT 3.1", "MaskWholeWords": "BERT code", "MaskNgrams": "ALBERT 4.1", "MaskSpans": "SpanBERT 3.1",
    "MaskPhrases": "ERNIE 3.2",
}  # fmt: skip


class Text(Protocol):
    """A corpus: borders, and the columns between any of them."""

    @property
    def sentences(self) -> np.ndarray: ...
    @property
    def documents(self) -> np.ndarray: ...
    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns: ...
    def unigram(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Head:
    """The first documents of a corpus."""

    whole: Text
    count: int

    @staticmethod
    def of(text: Text, tokens: int) -> Text:
        """As many documents as hold about so many tokens, two at least."""
        borders = text.sentences[text.documents]
        count = max(2, int(np.searchsorted(borders, tokens, side="right")) - 1)
        return text if count >= len(borders) - 1 else Head(text, count)

    @property
    def documents(self) -> np.ndarray:
        return self.whole.documents[: self.count + 1]

    @property
    def sentences(self) -> np.ndarray:
        return self.whole.sentences[: self.documents[-1] + 1]

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        return self.whole.take(starts, ends)

    def unigram(self) -> np.ndarray:
        return self.whole.unigram()


@dataclass(frozen=True)
class Single:
    """A corpus whose every token is a word."""

    whole: Text

    @property
    def documents(self) -> np.ndarray:
        return self.whole.documents

    @property
    def sentences(self) -> np.ndarray:
        return self.whole.sentences

    def take(self, starts: np.ndarray, ends: np.ndarray) -> Columns:
        taken = self.whole.take(starts, ends)
        return taken._replace(word_starts=np.ones(len(taken.tokens), dtype=bool))

    def unigram(self) -> np.ndarray:
        return self.whole.unigram()


@dataclass(frozen=True, slots=True)
class Material:
    """What is measured on."""

    text: Text
    vocabulary: Vocabulary
    sides: Text | None  # two-sided text
    seed: int = 0
    annotated: bool = True  # it has phrases and entities

    def source(self, segments: Segments, corruption: Corruption | None) -> Source:
        return Source(self.text, segments, corruption, self.vocabulary, self.seed)

    def masked(self, segments: Segments, corruption: Corruption, epochs: int = 1) -> RaggedBatch:
        """The examples of a few epochs, corrupted."""
        source = self.source(segments, corruption)
        made = [source.epoch(number) for number in range(epochs)]
        return concatenate([epoch.examples(np.arange(min(len(epoch.plan), MOST))) for epoch in made])


def cited(mask: Masking) -> str:
    """Where a mask is described."""
    return CITED[type(mask).__name__]
