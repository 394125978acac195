"""Where words begin, told from tokens: whole words are a fact of the data, decided once, here.

The tokenizer's pre-tokens are words, with two repairs. A pre-tokenizer that splits at white space only would fuse
`tokens,` with its comma; one that has no rule for Chinese would take a whole clause for one word. So a token of
punctuation stands alone, and a Chinese character begins a word.
"""

import json
import unicodedata

import numpy as np
import tokenizers

_MARKERS = "▁Ġ #"  # white space as SentencePiece and byte-level BPE write it


def is_han(character: str) -> bool:
    """One of the characters BERT splits off: the CJK blocks of its `BasicTokenizer`."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def is_punctuation(character: str) -> bool:
    """BERT's own notion: every ASCII symbol, and the Unicode punctuation classes."""
    return (character.isascii() and character.isprintable() and not character.isalnum() and character != " ") or (
        unicodedata.category(character)[0] == "P"
    )


class WordBorders:
    """Turns token ids and pre-token numbers into `word_starts`, by table look-up."""

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        facts = json.loads(tokenizer.to_str())
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1
        model = facts["model"]
        prefix = model.get("continuing_subword_prefix") or "##"
        before = (facts.get("pre_tokenizer") or {}).get("type")
        # BERT's pre-tokenizer splits punctuation and Chinese itself, so the ## of WordPiece says it all.
        self.from_ids_alone = model["type"] == "WordPiece" and before == "BertPreTokenizer"
        self._starts = np.zeros(size, bool)  # tokens that begin a word whatever stands before them
        self._ends = np.zeros(size, bool)  # tokens that end their word, unless a continuing one follows
        self._continues = np.zeros(size, bool)
        if self.from_ids_alone:
            added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
            for token, index in vocabulary.items():
                self._starts[index] = token in added or not (token.startswith(prefix) and len(token) > len(prefix))
        else:
            self._read(vocabulary, byte_level="ByteLevel" in json.dumps(facts.get("pre_tokenizer")))

    def _read(self, vocabulary: dict[str, int], byte_level: bool) -> None:
        to_byte = _byte_of_character() if byte_level else {}
        for token, index in vocabulary.items():
            if byte_level:
                raw = bytes(to_byte.get(character, 0) for character in token).lstrip(b" ")
                text = raw.decode("utf-8", "ignore")
                self._continues[index] = raw[:1] >= b"\x80" and raw[:1] < b"\xc0"
                # half a character is told by its first byte: E4 to E9 begin the common Chinese characters
                self._starts[index] = (bool(text) and is_han(text[0])) or (not text and b"\xe4" <= raw[:1] <= b"\xe9")
                self._ends[index] = bool(text) and is_han(text[-1])
            else:
                text = token.strip(_MARKERS)
                alone = bool(text) and all(map(is_punctuation, text))
                self._starts[index] = alone or (bool(text) and is_han(text[0]))
                self._ends[index] = alone or (bool(text) and is_han(text[-1]))

    def __call__(self, ids: np.ndarray, pre_tokens: np.ndarray | None, firsts: np.ndarray) -> np.ndarray:
        """`firsts` are the indices where texts begin; `pre_tokens` the pre-token number of each token."""
        starts = self._starts[ids]
        if pre_tokens is not None and len(ids):
            starts[1:] |= pre_tokens[1:] != pre_tokens[:-1]
            starts[1:] |= self._ends[ids[:-1]] & ~self._continues[ids[1:]]
        starts[firsts] = True
        return starts


def starts_of_words(words: list[str], offsets: list[tuple[int, int]]) -> np.ndarray:
    """Which tokens, given their character offsets in the joined words, are the first of their word."""
    word_of_character = np.repeat(np.arange(len(words)), [len(word) for word in words])
    firsts = np.fromiter((begin for begin, _ in offsets), np.int64, len(offsets))
    word_of_token = word_of_character[np.minimum(firsts, len(word_of_character) - 1)]
    return np.diff(word_of_token, prepend=-1) != 0


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, read backwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}
