"""One tokenizer class around every kind of vocabulary that can be trained or loaded."""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import tokenizers.models

from clozeworks.core import atomic_io
from clozeworks.core.characters import HALF_A_PAIR, is_han, is_unicode
from clozeworks.core.errors import InputError, suggest
from clozeworks.core.examples import Vocabulary
from clozeworks.data.tokens import files as tokenizer_files
from clozeworks.data.tokens import training as tokenizer_training
from clozeworks.data.tokens.facts import Facts, without_specials
from clozeworks.data.tokens.files import CONFIG, FILE
from clozeworks.data.tokens.roles import ROLES, roles
from clozeworks.data.tokens.spacing import respaced
from clozeworks.data.tokens.word_borders import WordBorders
from clozeworks.data.tokens.word_ids import SEAM, WordIds


class Encoding(NamedTuple):
    """The tokens of one text, without specials: ids int32 [n], word_starts bool [n], offsets of characters [n, 2]."""

    ids: np.ndarray
    word_starts: np.ndarray
    offsets: np.ndarray


class Tokenizer:
    """Text to ids and back, with the special tokens by role (`pad, unk, cls, sep, mask`; None where it has none)."""

    def __init__(self, inner: tokenizers.Tokenizer, names: dict[str, str] | None = None):
        inner = tokenizers.Tokenizer.from_str(inner.to_str())
        inner.no_truncation()  # files of other libraries may carry a length that would silently drop text
        inner.no_padding()
        self._inner = inner
        self._plain = without_specials(inner)  # a "[MASK]" in someone's text is text, not an instruction
        self._vocabulary: dict[str, int] = inner.get_vocab(with_added_tokens=True)
        self.names = roles(self._vocabulary, names or {})
        self.size: int = max(self._vocabulary.values(), default=-1) + 1
        self.pad, self.unk, self.cls, self.sep, self.mask = (self._id_of(role) for role in ROLES)
        added = inner.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(
            [index for index, token in added.items() if token.special]
            + [self._vocabulary[name] for name in self.names.values()]
        )
        self._facts = Facts.of(inner)
        self.borders = WordBorders(inner)

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

        `kind` is `wordpiece` (BERT), `bytes` (RoBERTa's byte-level BPE, always cased), `bpe` (GPT's character-level
        BPE), `unigram` (ALBERT, XLNet), `words` or `chars`.
        """
        if callable(texts):
            again = texts
        else:
            held = list(texts) if iter(texts) is texts else texts
            again = lambda: held  # noqa: E731
        return cls(tokenizer_training.train(again, kind, vocab, lowercase, lang))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """A tokenizer.json, a vocab.txt, vocab.json with merges.txt, a SentencePiece .model, or a directory of one."""
        return cls(*tokenizer_files.read(Path(path)))

    @staticmethod
    def is_in(directory: str | os.PathLike[str]) -> bool:
        """Does this directory hold a tokenizer that `load` would find?"""
        return any((Path(directory) / name).is_file() for name in tokenizer_files.FILES)

    def add_tokens(self, tokens: Sequence[str]) -> tuple["Tokenizer", int]:
        """A tokenizer that knows these words too, at the end of its vocabulary, and how many were new.

        No old id changes; a word that is one token already stays that token. Ordinary words match whole words only;
        Chinese ones, which have no spaces, match anywhere.
        """
        wrong = [token for token in tokens if not token.strip() or token != token.strip()]
        if wrong:
            raise InputError("tokens", repr(wrong[0]), "words without white space around them are needed", "strip them")
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        named = [token for token in dict.fromkeys(tokens) if token not in self._vocabulary]
        known = [one.ids.tolist() for one in self.encode(named)]
        fresh = [token for token, ids in zip(named, known, strict=True) if len(ids) != 1 or ids[0] in self.special_ids]
        make = functools.partial(tokenizers.AddedToken, lstrip=self._facts.space_before, normalized=True, special=False)
        inner.add_tokens([make(token, single_word=not any(map(is_han, token))) for token in fresh])
        return Tokenizer(inner, self.names), len(fresh)

    def add_specials(self, names: Sequence[str]) -> "Tokenizer":
        """A tokenizer with these special tokens more, at the end of its vocabulary: no text is ever one of them."""
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        fresh = [name for name in names if name not in self._vocabulary]
        inner.add_special_tokens([tokenizers.AddedToken(name, normalized=False, special=True) for name in fresh])
        return Tokenizer(inner, self.names)

    def unknown(self, texts: Sequence[str]) -> list[str]:
        """The words that a tokenizer of whole words does not know, each once; of others, which have pieces, none."""
        if not isinstance(self._inner.model, tokenizers.models.WordLevel) or self.unk is None:
            return []
        normal = self._inner.normalizer
        written = [
            text[begin:end]
            for text, encoding in zip(texts, self.encodings(texts), strict=True)
            for index, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if index == self.unk
        ]
        words = dict.fromkeys(written if normal is None else map(normal.normalize_str, written))
        return [word for word in words if word and word not in self._vocabulary]

    def learn(self, words: Sequence[str]) -> "Tokenizer":
        """A tokenizer of whole words that knows these too, at the end of its vocabulary."""
        state = json.loads(self._inner.to_str())
        state["model"]["vocab"] |= {word: self.size + number for number, word in enumerate(words)}
        return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), self.names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.json` file, or into a directory `tokenizer.json` and the config that `transformers` wants."""
        path = Path(path)
        if path.suffix == ".json":
            atomic_io.write_text(path, self._inner.to_str(pretty=True))
        else:
            atomic_io.write_text(path / FILE, self._inner.to_str(pretty=True))
            atomic_io.write_json(path / CONFIG, self.config())

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

    def describe(self) -> str:
        """One line for screens: `WordPiece, 8,192 pieces, lower-cased`."""
        return f"{self._facts.name}, {self.size:,} {self._facts.units}, {self._facts.case}"

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

    @property
    def filler(self) -> int:
        """What rows are filled up with: the padding token, or any where there is none, since nobody reads it."""
        return self.pad or 0

    @functools.cached_property
    def class_last(self) -> bool:
        """Whether the [CLS] stands behind a text, not before it."""
        specials = self._inner.encode("").ids
        return self.cls is not None and len(specials) > 1 and specials[-1] == self.cls

    def pair_template(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
        """The specials it puts before two texts, between them and behind them; None where it puts none."""
        pair = self._inner.encode("a", "b")
        text = [index for index, owner in enumerate(pair.sequence_ids) if owner is not None]
        if not text or not any(pair.special_tokens_mask):
            return None
        second = next(index for index in text if pair.sequence_ids[index] == 1)
        first = max(index for index in text if pair.sequence_ids[index] == 0)
        names = pair.tokens
        return tuple(names[: text[0]]), tuple(names[first + 1 : second]), tuple(names[text[-1] + 1 :])

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
        encodings = _encode(inner.encode_batch, texts)
        result = []
        for text, encoding in zip(texts, encodings, strict=True):
            ids = np.asarray(encoding.ids, np.int32)
            numbers = self.borders.numbers([encoding], [text])
            starts = self.borders(ids, numbers, np.zeros(min(len(ids), 1), np.int64))
            offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
            result.append(Encoding(ids, starts, offsets))
        return result

    def encodings(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        """What `tokenizers` makes of the texts, specials in them being text."""
        return _encode(self._plain.encode_batch, texts)

    @functools.cached_property
    def ids(self) -> WordIds:
        """The ids alone of many texts, where word borders follow from them (`borders.needs == "ids"`)."""
        seamed = without_specials(self._inner)
        seamed.add_tokens([tokenizers.AddedToken(SEAM, normalized=False, special=False)])
        seam: int = seamed.get_vocab(with_added_tokens=True)[SEAM]

        def encode(texts: list[str], bundled: bool) -> list[list[int]]:
            inner = seamed if bundled else self._plain
            return [one.ids for one in _encode(inner.encode_batch_fast, texts)]

        return WordIds(encode, seam)

    def decode(self, ids: Iterable[int], *, skip_specials: bool = True) -> str:
        return self._facts.decode(self._inner, [int(index) for index in ids], skip_specials)

    def write(self, ids: Iterable[int]) -> str:
        """Text of ids as people write it: where the tokenizer keeps no spaces, those around marks are put right."""
        text = self.decode(ids).strip()
        return text if self._facts.keeps_spaces else respaced(text)

    @property
    def lowercase(self) -> bool:
        """Whether capitals are lost."""
        return self._facts.case == "lower-cased"

    @property
    def inner(self) -> tokenizers.Tokenizer:
        """The `tokenizers` object; a copy, so that nobody changes what the fingerprint was taken of."""
        return tokenizers.Tokenizer.from_str(self._inner.to_str())

    def __reduce__(self):
        return _rebuild, (self._inner.to_str(), self.names)

    def __repr__(self) -> str:
        return f"Tokenizer({self.describe()}, {self.names})"

    def _id_of(self, role: str) -> int | None:
        name = self.names.get(role)
        return None if name is None else self._vocabulary[name]


def _rebuild(text: str, names: dict[str, str]) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(text), names)


def _encode(encode: Callable[..., list[tokenizers.Encoding]], texts: Sequence[str]) -> list[tokenizers.Encoding]:
    try:
        return encode(list(texts), add_special_tokens=False)
    except Exception as error:  # tokenizers raises plain Exception, for one when [UNK] is needed and missing
        for text in texts:
            if not is_unicode(text):
                todo = "read it again as UTF-8, or leave that character out"
                raise InputError("text", f"{HALF_A_PAIR} in {text[:40]!a}", "Unicode text is needed", todo) from None
        raise InputError("tokenizer", error, "every character needs a token", "add an unk token or train one") from None
