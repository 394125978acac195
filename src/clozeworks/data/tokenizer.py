"""One tokenizer class around any `tokenizer.json`, `vocab.txt` or `vocab.json` with `merges.txt`."""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from clozeworks import atomic
from clozeworks.data import tokenizer_training
from clozeworks.data.word_borders import WordBorders, is_han, starts_of_words
from clozeworks.errors import InputError, suggest
from clozeworks.examples import Vocabulary

ROLES = ("pad", "unk", "cls", "sep", "mask")
# The first name found in the vocabulary is taken. <cls> goes before <s>: where both exist, <s> has another use.
_USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"


class Encoding(NamedTuple):
    """The tokens of one text, without specials: ids int32 [n], word_starts bool [n], offsets of characters [n, 2]."""

    ids: np.ndarray
    word_starts: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True, slots=True)
class Tokens:
    """Many texts end to end: tokens int32 [n], word_starts bool [n], lengths int64 [texts]."""

    tokens: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray


class Tokenizer:
    """Text to ids and back, with the special tokens by role (`pad, unk, cls, sep, mask`; None where it has none)."""

    def __init__(self, inner: tokenizers.Tokenizer, names: dict[str, str] | None = None):
        inner = tokenizers.Tokenizer.from_str(inner.to_str())
        inner.no_truncation()  # files of other libraries may carry a length that would silently drop text
        inner.no_padding()
        self._inner = inner
        self._plain = tokenizers.Tokenizer.from_str(inner.to_str())
        self._plain.encode_special_tokens = True  # a "[MASK]" in someone's text is text, not an instruction
        self._vocabulary: dict[str, int] = inner.get_vocab(with_added_tokens=True)
        self.names = _roles(self._vocabulary, names or {})
        self.size: int = max(self._vocabulary.values(), default=-1) + 1
        self.pad, self.unk, self.cls, self.sep, self.mask = (self._id_of(role) for role in ROLES)
        added = inner.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(
            [index for index, token in added.items() if token.special]
            + [self._vocabulary[name] for name in self.names.values()]
        )
        self._borders = WordBorders(inner)

    # ---- making one

    @classmethod
    def train(
        cls,
        texts: Iterable[str] | Callable[[], Iterable[str]],
        kind: str = "wordpiece",
        vocab: int = 8192,
        lowercase: bool = True,
        lang: str = "en",
    ) -> "Tokenizer":
        """Train on texts, which are read twice: pass a function that gives a fresh iterator to stream from disk.

        `kind` is `wordpiece` (BERT) or `bytes` (RoBERTa's byte-level BPE, always cased).
        """
        if callable(texts):
            again = texts
        else:
            held = list(texts) if iter(texts) is texts else texts
            again = lambda: held  # noqa: E731
        return cls(tokenizer_training.train(again, kind, vocab, lowercase, lang))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """A tokenizer.json, a vocab.txt, or a directory that holds either, or vocab.json and merges.txt."""
        file = _file_of(Path(path))
        config = _config_beside(file)
        names = {role: name for role in ROLES if (name := _content(config.get(f"{role}_token")))}
        if file.suffix == ".txt":
            return cls(_from_vocab_txt(file, config, names), names)
        if file.name == "vocab.json":
            return cls(_from_merges(file, config, names), names)
        try:
            inner = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # tokenizers raises plain Exception
            given = f"not a tokenizer file ({error})"
            raise InputError(file, given, "a tokenizer.json of the tokenizers library is needed", "check it") from None
        return cls(inner, names)

    def add_tokens(self, tokens: Sequence[str]) -> tuple["Tokenizer", int]:
        """A tokenizer that knows these words too, at the end of its vocabulary, and how many were new.

        No old id changes. Ordinary words match whole words only; Chinese ones, which have no spaces, match anywhere.
        """
        wrong = [token for token in tokens if not token.strip() or token != token.strip()]
        if wrong:
            raise InputError("tokens", repr(wrong[0]), "words without white space around them are needed", "strip them")
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        leading = self._is_byte_level()  # there the space belongs to the word after it
        fresh = [token for token in dict.fromkeys(tokens) if token not in self._vocabulary]
        inner.add_tokens(
            [
                tokenizers.AddedToken(
                    token, single_word=not any(map(is_han, token)), lstrip=leading, normalized=True, special=False
                )
                for token in fresh
            ]
        )
        return Tokenizer(inner, self.names), len(fresh)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.json` file, or into a directory `tokenizer.json` and the config that `transformers` wants."""
        path = Path(path)
        if path.suffix == ".json":
            atomic.write_text(path, self._inner.to_str(pretty=True))
        else:
            atomic.write_text(path / FILE, self._inner.to_str(pretty=True))
            atomic.write_json(path / CONFIG, self.config())

    # ---- facts

    def config(self) -> dict[str, Any]:
        """The content of a `tokenizer_config.json` with which `AutoTokenizer` takes tokenizer.json as it is."""
        names = {f"{role}_token": name for role, name in self.names.items()}
        return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the tokenizer is, whatever the layout of its file."""
        text = json.dumps(json.loads(self._inner.to_str()), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def need(self, role: str) -> int:
        """The id of a special token, or a clear sentence when this tokenizer has none."""
        if role not in ROLES:
            raise InputError("special token", role, "a known role is needed", suggest(role, ROLES))
        index = self._id_of(role)
        if index is None:
            given = f"no {role} token among {self.size:,}"
            todo = f"train one with `clozeworks prepare`, or name it as {role}_token in {CONFIG}"
            raise InputError("tokenizer", given, f"a {role} token is needed here", todo)
        return index

    def vocabulary(self) -> Vocabulary:
        """What making examples needs of a tokenizer."""
        pad, cls, sep, mask = (self.need(role) for role in ("pad", "cls", "sep", "mask"))
        return Vocabulary(self.size, pad, cls, sep, mask, tuple(sorted(self.special_ids)))

    def token(self, index: int) -> str:
        text = self._inner.id_to_token(int(index))
        if text is None:
            given, needed = f"no token {index}", f"ids run from 0 to {self.size - 1:,}"
            raise InputError("tokenizer", given, needed, "is it the tokenizer of this data?")
        return text

    def id(self, token: str) -> int | None:
        return self._vocabulary.get(token)

    # ---- text to ids and back

    def encode(self, texts: Sequence[str], *, specials: bool = False) -> list[Encoding]:
        """Ids, word starts and character offsets of each text; no [CLS] or [SEP] is put around it.

        With `specials` a special token written in the text, such as [MASK], is taken as one; otherwise it is text.
        """
        inner = self._inner if specials else self._plain
        found = _said(lambda: inner.encode_batch(list(texts), add_special_tokens=False))
        result = []
        for encoding in found:
            ids = np.asarray(encoding.ids, np.int32)
            numbers = _numbers(encoding.word_ids)
            starts = self._borders(ids, numbers, np.zeros(min(len(ids), 1), np.int64))
            offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
            result.append(Encoding(ids, starts, offsets))
        return result

    def encode_flat(self, texts: Sequence[str], words: Sequence[list[str] | None] | None = None) -> Tokens:
        """The same for many texts at once, end to end: the fast way for a corpus.

        `words` are known words that join to their text (None: not known); word starts then follow them.
        """
        alone = self._borders.from_ids_alone and words is None
        batch = self._plain.encode_batch_fast if alone else self._plain.encode_batch
        found = _said(lambda: batch(list(texts), add_special_tokens=False))
        lists = [encoding.ids for encoding in found]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        tokens = np.fromiter(itertools.chain.from_iterable(lists), np.int32, int(lengths.sum()))
        numbers = None
        if not alone:
            numbers = _numbers(itertools.chain.from_iterable(encoding.word_ids for encoding in found))
        ends = np.cumsum(lengths)
        starts = self._borders(tokens, numbers, (ends - lengths)[lengths > 0])
        for known, encoding, end in zip(words or (), found, ends, strict=False):
            if known is not None:
                starts[end - len(encoding) : end] = starts_of_words(known, encoding.offsets)
        return Tokens(tokens, starts, lengths)

    def decode(self, ids: Iterable[int], *, skip_specials: bool = True) -> str:
        return self._inner.decode([int(index) for index in ids], skip_special_tokens=skip_specials)

    @property
    def inner(self) -> tokenizers.Tokenizer:
        """The `tokenizers` object; a copy, so that nobody changes what the fingerprint was taken of."""
        return tokenizers.Tokenizer.from_str(self._inner.to_str())

    def __reduce__(self):
        return _rebuild, (self._inner.to_str(), self.names)

    def __repr__(self) -> str:
        return f"Tokenizer({json.loads(self._inner.to_str())['model']['type']}, size={self.size}, {self.names})"

    def _id_of(self, role: str) -> int | None:
        name = self.names.get(role)
        return None if name is None else self._vocabulary[name]

    def _is_byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(json.loads(self._inner.to_str()).get("pre_tokenizer"))


def _rebuild(text: str, names: dict[str, str]) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(text), names)


def _numbers(word_ids: Iterable[int | None]) -> np.ndarray:
    """Pre-token numbers; a token that has none (a special) gets a number of its own kind."""
    return np.fromiter((-1 if number is None else number for number in word_ids), np.int32)


def _said(encode: Callable[[], list[tokenizers.Encoding]]) -> list[tokenizers.Encoding]:
    try:
        return encode()
    except Exception as error:  # tokenizers raises plain Exception, for one when [UNK] is needed and missing
        raise InputError("tokenizer", error, "every character needs a token", "add an unk token or train one") from None


def _roles(vocabulary: dict[str, int], given: dict[str, str]) -> dict[str, str]:
    names = {}
    for role in ROLES:
        for name in (given.get(role), *_USUAL[role]):
            if name in vocabulary:
                names[role] = name
                break
    return names


def _file_of(path: Path) -> Path:
    if path.is_dir():
        for name in (FILE, "vocab.txt", "vocab.json"):
            if (path / name).is_file():
                return path / name
        needed = f"{FILE}, vocab.txt or vocab.json with merges.txt is needed"
        raise InputError(path, "no tokenizer in this directory", needed, "check the path")
    if not path.is_file():
        kinds = "wordpiece, bytes or a path"
        raise InputError(
            path, "no such file", f"a tokenizer ({kinds}) is needed", suggest(str(path), ["wordpiece", "bytes"])
        )
    if path.suffix not in (".json", ".txt"):
        needed = "a tokenizer.json, a vocab.txt, or vocab.json with merges.txt is needed"
        raise InputError(path, f"unknown ending {path.suffix!r}", needed, "convert it to tokenizer.json")
    return path


def _config_beside(file: Path) -> dict[str, Any]:
    """special_tokens_map.json and tokenizer_config.json beside a file, the latter having the last word."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", CONFIG):
        beside = file.parent / name
        if beside.is_file():
            try:
                config.update(json.loads(beside.read_text(encoding="utf-8")))
            except ValueError as error:
                raise InputError(
                    beside, f"not JSON ({error})", "a JSON object is needed", "mend or remove it"
                ) from None
    return config


def _content(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _from_vocab_txt(file: Path, config: dict[str, Any], names: dict[str, str]) -> tokenizers.Tokenizer:
    try:
        pieces = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(file, f"not UTF-8 ({error.reason})", "one piece a line is needed", "check the file") from None
    while pieces and not pieces[-1]:
        pieces.pop()
    pieces = [piece.rstrip("\r") for piece in pieces]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if len(vocabulary) < 2 or any(re.search(r"\S\s+\S", piece) for piece in pieces[:100]):
        raise InputError(
            file, f"{len(vocabulary)} pieces", "a vocabulary, one piece a line, is needed", "check the file"
        )
    lowercase = config.get("do_lower_case")
    if lowercase is None:  # a vocabulary with capitals was made for cased text
        bare = (piece for piece in pieces if not re.fullmatch(r"[\[<].*[\]>]", piece))
        lowercase = not any(piece != piece.lower() for piece in bare)
    normalizer = tokenizer_training.wordpiece_normalizer(
        lowercase, config.get("strip_accents"), config.get("tokenize_chinese_chars", True)
    )
    return tokenizer_training.wordpiece_tokenizer(vocabulary, normalizer, _roles(vocabulary, names))


def _from_merges(file: Path, config: dict[str, Any], names: dict[str, str]) -> tokenizers.Tokenizer:
    merges = file.with_name("merges.txt")
    if not merges.is_file():
        raise InputError(file, "no merges.txt beside it", "byte-level BPE is two files", "put merges.txt beside it")
    try:
        vocabulary = json.loads(file.read_text(encoding="utf-8"))
        lines = [
            line for line in merges.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#version")
        ]
        pairs = [(left, right) for left, right in (line.rstrip("\r").split(" ") for line in lines)]
        prefix_space = config.get("add_prefix_space", False)
        return tokenizer_training.byte_level_tokenizer(vocabulary, pairs, _roles(vocabulary, names), prefix_space)
    except InputError:
        raise
    except Exception as error:  # ValueError of ours, plain Exception of tokenizers
        raise InputError(
            file, f"unreadable ({error})", "the files of a byte-level BPE are needed", "check them"
        ) from None
