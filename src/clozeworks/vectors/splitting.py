"""Sentences into words for vectors: lower-cased words and marks, as a `words` tokenizer has them, or Chinese words.

Words that a document brings, and those a segmenter finds, are taken whole; the rest is split as BERT does, and accents
stay. The segmenter `spaces` takes all that stands between two spaces for a word, in any language.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import pre_tokenizers

from clozeworks.data.shards.units import Unit, sentences_of
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.pieces import wordpiece_normalizer
from clozeworks.data.tokens.segmenters import Segmenter, start_segmentation
from clozeworks.data.tokens.word_borders import is_punctuation
from clozeworks.vectors.words import Part

REMEMBERED = 1 << 18  # different stretches between spaces


@dataclass(frozen=True, slots=True)
class Splitting:
    """How text becomes words: `segmenter` finds those of Chinese, `marks` says whether punctuation marks are words."""

    lowercase: bool = True
    marks: bool = True
    segmenter: str | Segmenter | None = None

    def start(self) -> Callable[[Unit], Part]:
        return Splitter(self)


class Splitter:
    """At work on one text."""

    def __init__(self, given: Splitting):
        self._normal = wordpiece_normalizer(given.lowercase, strip_accents=False)  # schon is not schön
        self._split = pre_tokenizers.BertPreTokenizer()
        self._marks = given.marks
        self._cut = functools.lru_cache(REMEMBERED)(self._cut_anew)
        name = given.segmenter
        self._spaced = name == "spaces"
        self._segment = start_segmentation(name)

    def __call__(self, unit: Unit) -> Part:
        return Part.of(sentence for document in unit.documents for sentence in self._sentences(document) if sentence)

    def _sentences(self, document: Document) -> Iterable[list[str]]:
        if document.words is not None:
            return map(self._whole, document.words)
        sentences = sentences_of(document)
        if self._spaced:
            return (self._whole(text.split()) for text in sentences)
        if self._segment is None:
            return map(self.words, sentences)
        segmented, _ = self._segment(sentences)
        return (
            self.words(text) if known is None else self._whole(known)
            for text, known in zip(sentences, segmented, strict=True)
        )

    def words(self, text: str) -> list[str]:
        """The words of a sentence; what becomes of a stretch between two spaces depends on nothing else."""
        return [word for stretch in text.split(" ") for word in self._cut(stretch)]

    def _cut_anew(self, stretch: str) -> list[str]:
        pieces = self._split.pre_tokenize_str(self._normal.normalize_str(stretch))
        return [word for word, _ in pieces if self._marks or not is_punctuation(word[0])]

    def _whole(self, words: Iterable[str]) -> list[str]:
        """Words that are known, in the letters that the others have."""
        spelt = ("".join(self._normal.normalize_str(word).split()) for word in words)
        return [word for word in spelt if word and (self._marks or not all(map(is_punctuation, word)))]
