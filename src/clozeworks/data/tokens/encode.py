"""Many texts into the columns of a corpus: tokens, where words begin, and which tokens are phrases and entities.

Words that somebody knows (a gold corpus, a segmenter) only move the word borders; ids are what the tokenizer makes of
the text, whatever the words are.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers

from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START
from clozeworks.data.tokens.alignment import Alignment, word_begins
from clozeworks.data.tokens.tokenizer import Tokenizer

Span = Sequence[int]  # characters [begin, end) of a text


@dataclass(frozen=True, slots=True)
class Tokens:
    """Many texts end to end.

    `misaligned` counts word and unit borders that fell inside a token, lists of words that do not join to their text,
    and spans that lie outside it or over another of their kind.
    """

    tokens: np.ndarray  # int32 [n]
    word_starts: np.ndarray  # bool [n]
    lengths: np.ndarray  # int64 [texts]
    units: np.ndarray | None = None  # uint8 [n], bits of clozeworks.core.examples; None when no span was given
    misaligned: int = 0


@dataclass(frozen=True, slots=True)
class Spans:
    """What is annotated in a text."""

    phrases: Sequence[Span] = ()
    entities: Sequence[Span] = ()


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    words: Sequence[list[str] | None] | None = None,
    spans: Sequence[Spans | None] | None = None,
) -> Tokens:
    """The tokens of many texts, with the words and spans that are known of some.

    Words join to their text, white space aside. A token over the border of two words belongs to that of its first
    character; words that do not join leave their text to the tokenizer's own borders. Both are counted.
    """
    known = words is not None and any(one is not None for one in words)
    marked = spans is not None and any(one is not None for one in spans)
    if tokenizer.borders.needs == "ids" and not known and not marked:
        tokens, lengths = tokenizer.ids(texts)
        firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
        return Tokens(tokens, tokenizer.borders(tokens, None, firsts), lengths)
    encodings = tokenizer.encodings(texts)
    lists = [one.ids for one in encodings]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    tokens = np.fromiter(itertools.chain.from_iterable(lists), np.int32, int(lengths.sum()))
    firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
    starts = tokenizer.borders(tokens, tokenizer.borders.numbers(encodings, texts), firsts)
    units, misaligned = None, 0
    if known and words is not None:
        misaligned += _follow(words, texts, encodings, starts, lengths)
    if marked and spans is not None:
        units = np.zeros(len(tokens), np.uint8)
        misaligned += _mark(spans, texts, encodings, units, lengths)
    return Tokens(tokens, starts, lengths, units, misaligned)


def _follow(
    words: Sequence[list[str] | None],
    texts: Sequence[str],
    encodings: Sequence[tokenizers.Encoding],
    starts: np.ndarray,
    lengths: np.ndarray,
) -> int:
    """Word starts from known words, in place; how much of them did not fit."""
    begins = [None if one is None else word_begins(text, one) for text, one in zip(texts, words, strict=True)]
    unfit = sum(one is not None and places is None for one, places in zip(words, begins, strict=True))
    chosen = [number for number, places in enumerate(begins) if places is not None and len(texts[number])]
    aligned = Alignment([texts[number] for number in chosen], [encodings[number] for number in chosen])
    borders = np.zeros(len(aligned.text), bool)
    counts = np.fromiter((len(begins[number] or ()) for number in chosen), np.int64, len(chosen))
    places = itertools.chain.from_iterable(begins[number] or () for number in chosen)
    borders[np.fromiter(places, np.int64, int(counts.sum())) + np.repeat(aligned.bases, counts)] = True
    borders[aligned.bases] = True
    word = aligned.words(borders)
    follows = np.zeros(len(lengths), bool)
    follows[chosen] = True
    starts[np.repeat(follows, lengths)] = np.diff(word, prepend=-1) != 0
    return unfit + aligned.split(borders)


def _mark(
    spans: Sequence[Spans | None],
    texts: Sequence[str],
    encodings: Sequence[tokenizers.Encoding],
    units: np.ndarray,
    lengths: np.ndarray,
) -> int:
    """The bits of phrases and entities, in place; how much of them did not fit."""
    misaligned = 0
    chosen = [number for number, one in enumerate(spans) if one is not None]
    aligned = Alignment([texts[number] for number in chosen], [encodings[number] for number in chosen])
    tokens = np.cumsum(lengths) - lengths
    ours = np.cumsum(aligned.counts) - aligned.counts
    for at, number in enumerate(chosen):
        here = slice(ours[at], ours[at] + aligned.counts[at])
        first, last = aligned.first[here] - aligned.bases[at], aligned.last[here] - aligned.bases[at]
        bits = units[tokens[number] : tokens[number] + lengths[number]]  # a view
        one = spans[number] or Spans()
        for given, start, inside in (
            (one.phrases, PHRASE_START, PHRASE_INSIDE),
            (one.entities, ENTITY_START, ENTITY_INSIDE),
        ):
            misaligned += _mark_kind(given, len(texts[number]), first, last, bits, start, inside)
    return misaligned


def _mark_kind(
    spans: Sequence[Span], size: int, first: np.ndarray, last: np.ndarray, bits: np.ndarray, start: int, inside: int
) -> int:
    """A token over the border of a span is no part of it."""
    misaligned, reached = 0, 0
    for begin, end in sorted(map(tuple, spans), key=lambda span: (span[0], -span[1])):
        if begin < reached or end > size or begin >= end:  # outside the text, empty, or over the one before
            misaligned += 1
            continue
        reached = end
        low, high = np.searchsorted(first, [begin, end]).tolist()
        misaligned += bool(low and last[low - 1] > begin)
        while high > low and last[high - 1] > end:
            high -= 1
        misaligned += bool(high < len(first) and first[high] < end < last[high]) or bool(
            low and low == high and first[low - 1] < end < last[low - 1]
        )
        if high > low:
            bits[low] |= start
            bits[low + 1 : high] |= inside
    return misaligned
