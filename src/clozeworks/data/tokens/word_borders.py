"""Where words begin, decided by tokens: whole words are a fact of the data, decided once, here.

The tokenizer's pre-tokens are words, with three repairs for pre-tokenizers that do less than BERT's. One that splits at
white space only would fuse `tokens,` with its comma; one that has no rule for Chinese would take a whole clause for one
word; one that splits every character would leave no word at all. So a token that begins or ends with punctuation does
not join its neighbour on that side, a Chinese character is a word, and letters that stand together are one.

A space belongs to the word after it, also where it is a token of its own. BERT's pre-tokenizer splits off every
apostrophe (don ' t); byte-level BPE has a rule for contractions (don 't) and keeps runs of marks together.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

import numpy as np
import tokenizers

from clozeworks.core.characters import is_han
from clozeworks.data.tokens.alignment import Alignment, classes_of

HAN = r"\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
SPACE, WIDE_JOINER = "▁", "\u200d"  # white space as SentencePiece writes it; what glues emoji
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")  # a byte, where SentencePiece falls back on bytes

Needs = Literal["ids", "pre-tokens", "text"]


def is_punctuation(character: str) -> bool:
    """BERT's own notion: every ASCII symbol, and the Unicode punctuation classes."""
    return (character.isascii() and character.isprintable() and not character.isalnum() and character != " ") or (
        unicodedata.category(character)[0] == "P"
    )


class WordBorders:
    """Turns tokens into `word_starts`, by table look-up.

    `needs` says what it takes beside the ids: nothing (BERT's WordPiece: the ## says it all), the numbers of the
    pre-tokens, or, where every character is a pre-token, the text itself.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        facts = json.loads(tokenizer.to_str())
        model = facts["model"]
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1
        self._starts = np.zeros(size, bool)  # tokens that begin a word whatever stands before them
        self._ends = np.zeros(size, bool)  # tokens that end their word, unless a continuing one follows
        self._continues = np.zeros(size, bool)  # tokens that begin inside a character
        self._inside = np.zeros(size, bool)  # tokens that lie inside a character and do not end it
        self._space = np.zeros(size, bool)  # tokens of white space alone
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        splits = tokenizer.pre_tokenizer.pre_tokenize_str if tokenizer.pre_tokenizer else lambda text: [text]
        self.needs: Needs = "pre-tokens"
        before = (facts.get("pre_tokenizer") or {}).get("type")
        normal = tokenizer.normalizer.normalize_str("我们") if tokenizer.normalizer else ""
        if model["type"] == "WordPiece" and before == "BertPreTokenizer" and " " in normal:
            self.needs = "ids"
            self._read_prefixes(vocabulary, added, model.get("continuing_subword_prefix") or "##")
        elif len(splits("letters")) == len("letters"):
            self.needs = "text"
        else:
            byte_level = "ByteLevel" in json.dumps(facts.get("pre_tokenizer"))
            marks = not (byte_level and len(splits("a,")) == 2)  # its own rule knows contractions
            self._read(vocabulary, added, _unknown(model), _spelling(model, byte_level), marks)

    def _read_prefixes(self, vocabulary: dict[str, int], added: set[str], prefix: str) -> None:
        for token, index in vocabulary.items():
            self._starts[index] = token in added or not (token.startswith(prefix) and len(token) > len(prefix))

    def _read(self, vocabulary: dict[str, int], added: set[str], unknown: str | None, spelling, marks: bool) -> None:
        for token, index in vocabulary.items():
            if token == unknown:
                continue  # it may stand for anything
            if token in added:
                self._starts[index] = self._ends[index] = True
                continue
            raw = spelling(token)
            bare = raw.lstrip(b" ")
            text = bare.decode("utf-8", "ignore")
            tail = _cut_off(bare)
            self._space[index] = bool(raw) and not bare
            self._continues[index] = _is_inner(raw[:1]) or _combines(text[:1])
            self._inside[index] = bool(raw) and all(_is_inner(raw[at : at + 1]) for at in range(len(raw)))
            first, last = text[:1] or _guess(tail), _guess(tail) if tail else text[-1:]
            alone = lambda character: is_han(character) or (marks and is_punctuation(character))  # noqa: E731
            self._starts[index] = raw != bare or (not self._continues[index] and first != "" and alone(first))
            self._ends[index] = last != "" and alone(last)

    def numbers(self, encodings: Sequence[tokenizers.Encoding], texts: Sequence[str]) -> np.ndarray | None:
        """For each token the number of its pre-token, or of the word of the text it stands in; None if not needed."""
        if self.needs == "ids":
            return None
        if self.needs == "pre-tokens":
            total = sum(map(len, encodings))
            try:
                return np.fromiter(itertools.chain.from_iterable(one.word_ids for one in encodings), np.int32, total)
            except TypeError:  # a special token in the text has no number
                known = (-1 if number is None else number for one in encodings for number in one.word_ids)
                return np.fromiter(known, np.int32, total)
        aligned = Alignment(texts, encodings)
        return aligned.words(_borders_of(aligned.text))

    def __call__(self, ids: np.ndarray, numbers: np.ndarray | None, firsts: np.ndarray) -> np.ndarray:
        """`firsts` are the indices where texts begin."""
        starts = self._starts[ids]
        if numbers is not None and len(ids):
            ends, inside = self._ends[ids], self._inside[ids]
            if inside.any():  # a character in bytes ends a word if the token that opened it does
                ends = ends[np.maximum.accumulate(np.where(inside, 0, np.arange(len(ids))))]
            other = numbers[1:] != numbers[:-1]
            starts[1:] |= ends[:-1] & ~self._continues[ids[1:]]
            starts[1:] &= ~self._space[ids[:-1]]
            starts[1:] |= other
        starts[firsts] = True
        return starts


def _borders_of(text: str) -> np.ndarray:
    """Which characters begin a word, by what they are: marks and Chinese stand alone, the rest stands together."""
    alone, joins, space = classes_of(text, _classes)
    borders = alone.copy()
    borders[1:] |= (alone[:-1] | space[:-1]) & ~joins[1:]
    return borders


def _classes(character: str) -> tuple[bool, bool, bool]:
    alone = is_han(character) or is_punctuation(character)
    return alone, _combines(character), character.isspace()


def _combines(character: str) -> bool:
    return bool(character) and (unicodedata.category(character)[0] == "M" or character == WIDE_JOINER)


def _unknown(model: dict) -> str | None:
    if model["type"] == "Unigram":
        return None if model.get("unk_id") is None else model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def _spelling(model: dict, byte_level: bool):
    """From a token to its bytes, white space as a space."""
    if byte_level:
        to_byte = _byte_of_character()
        return lambda token: bytes(to_byte.get(character, 0) for character in token)
    prefix = model.get("continuing_subword_prefix") or ("##" if model["type"] == "WordPiece" else "")
    suffix = model.get("end_of_word_suffix") or ""

    def spell(token: str) -> bytes:
        if model.get("byte_fallback") and (byte := _FALLBACK.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        bare = token.removesuffix(suffix) or token
        bare = bare.removeprefix(prefix) or bare
        return bare.replace(SPACE, " ").encode("utf-8", "surrogatepass")

    return spell


def _is_inner(byte: bytes) -> bool:
    return b"\x80" <= byte < b"\xc0"


def _cut_off(raw: bytes) -> bytes:
    """The bytes at the end that open a character and do not end it."""
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:
            return raw[-back:] if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else b""
        if byte < 0x80:
            break
    return b""


def _guess(opened: bytes) -> str:
    """The last character that begins with these bytes, if the first one is of its kind; "" otherwise.

    E4 to E9 open Chinese characters only, E3 also the marks and syllables of Japanese.
    """
    if not opened:
        return ""
    length = 2 + (opened[0] >= 0xE0) + (opened[0] >= 0xF0)
    ends = [(opened + fill * (length - len(opened))).decode("utf-8", "ignore") for fill in (b"\x80", b"\xbf")]
    return ends[1] if all(map(is_han, ends)) else ""


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, read backwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}
