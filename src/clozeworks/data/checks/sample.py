"""The dear questions, asked of a sample: sentences, markup, words between spaces, normalisation, unknown tokens."""

import re
import unicodedata
from dataclasses import dataclass, field

from clozeworks.data.shards.units import sentences_of
from clozeworks.data.text.documents import Document
from clozeworks.data.text.sentences import LONGEST, split_sentences
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.word_borders import HAN

CHARACTERS = 1_500_000  # in the sample, more or less
PIECE = 100_000  # characters of one document that are looked at
SEGMENTED = 300  # Chinese sentences that a segmenter is tried on
TOKENISED = 400_000  # characters that a tokenizer is tried on
MARKS = 2_000  # combining marks that `unicodedata` may sort: its time grows with the square of a run

_MARKUP = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|&(?:[a-z]{2,8}|#\d{1,6});|\[\[|\]\]|\{\{|\}\}|\{\||\|\}")
_CODED = re.compile(r"[A-Za-z0-9+/=_-]{80,}")
_SPACED = re.compile(f"[{HAN}]+(?= [{HAN}])")
_JOINED = re.compile(f"[{HAN}](?=[{HAN}])")
_DIGITS = re.compile(r"\d")
_MARK = re.compile("[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]")


@dataclass(slots=True)
class Sample:
    """Documents that a hash chooses; the first is always among them. `share` is the part of the text to look at."""

    share: float
    tokenizer: Tokenizer | None = None
    kept: int = 0  # how many sentences to keep for a segmenter
    texts: list[str] = field(default_factory=list)
    characters: int = 0
    documents: int = 0
    whole: int = 0  # documents that were looked at to their end
    sentences: int = 0
    lone: int = 0  # whole documents of one sentence
    longest: int = 0  # characters of a sentence
    cut: int = 0  # sentences beyond what `prepare` keeps whole
    markup: int = 0  # characters
    coded: int = 0  # characters in long runs without a space, such as base64
    numbers: int = 0  # documents that are mostly digits
    spaced: int = 0  # pairs of Chinese characters with a space between them
    joined: int = 0
    denormal: int = 0  # documents that NFC changes
    tried: int = 0  # characters given to the tokenizer
    tokens: int = 0
    unknown: int = 0

    def add(self, document: Document, text: str, key: int) -> None:
        """Look at a document if its hash chooses it."""
        chosen = self.documents == 0 or key < self.share * (1 << 64)
        if not chosen or self.characters > 4 * CHARACTERS:
            return
        piece = text[:PIECE]
        self.documents += 1
        self.characters += len(piece)
        self._split(document, text)
        if any(mark in piece for mark in "<&[{"):
            self.markup += sum(len(match[0]) for match in _MARKUP.finditer(piece))
        self.coded += sum(len(match[0]) for match in _CODED.finditer(piece))
        self.numbers += 2 * len(_DIGITS.findall(piece)) > len(piece) - piece.count(" ")
        if not piece.isascii():
            self.spaced += len(_SPACED.findall(piece))
            self.joined += len(_JOINED.findall(piece))
            few = len(_MARK.findall(piece)) <= MARKS
            self.denormal += not unicodedata.is_normalized("NFC", piece if few else piece[:MARKS])
        if self.tokenizer is not None and self.tried < TOKENISED:
            self._tokenise(self.tokenizer, piece)

    def _split(self, document: Document, text: str) -> None:
        given = document.words is not None or document.sentences is not None
        sentences = sentences_of(document) if given else split_sentences(text[:PIECE], longest=PIECE)
        self.sentences += len(sentences)
        if len(self.texts) < self.kept and document.words is None:
            self.texts += [text for text in sentences if _JOINED.search(text)][: self.kept - len(self.texts)]
        self.longest = max(self.longest, max(map(len, sentences), default=0))
        self.cut += sum(len(sentence) >= LONGEST for sentence in sentences)
        if document.part == 0 and len(text) <= PIECE:
            self.whole += 1
            self.lone += len(sentences) < 2

    def _tokenise(self, tokenizer: Tokenizer, piece: str) -> None:
        self.tried += len(piece)
        for encoding in tokenizer.encode(split_sentences(piece)):
            self.tokens += len(encoding.ids)
            if tokenizer.unk is not None:
                self.unknown += int((encoding.ids == tokenizer.unk).sum())
