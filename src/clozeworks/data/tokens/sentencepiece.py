"""SentencePiece `.model` files read without SentencePiece (Kudo and Richardson 2018, arXiv:1808.06226).

The file is a protocol buffer: pieces with score and type, the kind of model, and a normaliser. Its fields are read by
a reader of the wire format; what comes out is a tokenizer of the `tokenizers` library that gives the same ids.

Where the two libraries differ, and what is done about it:
- Pieces that the user defined win over all others: in a unigram model by their score, in BPE by standing alone before
  merges begin. Neither protects them from normalisation.
- The table of the normaliser is applied by `tokenizers` to whole grapheme clusters, of which it takes the first match;
  SentencePiece takes the longest. They differ on marks after a compatibility form (a ligature with an accent) and on
  several marks after one letter; where the table folds case, composing (NFC) first keeps single accents.
- A `▁` that begins the text counts as a space.
- Spellings of equal score (p + pp, pp + p) differ by rounding: 32 bits there, 64 here.
"""

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from clozeworks.core.errors import InputError
from clozeworks.data.tokens import charsmap
from clozeworks.data.tokens.pieces import SPACE, with_specials

FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
_KINDS = {3: "words", 4: "characters"}
_DEFINED = -0.1  # the score SentencePiece gives a piece that the user defined: better than any other


@dataclass
class Piece:
    """A token of the file, with its log probability or rank, and what kind of token it is."""

    text: str = ""
    score: float = 0.0
    type: int = NORMAL


@dataclass
class Model:
    """What a `.model` file says, as far as encoding needs it."""

    pieces: list[Piece] = field(default_factory=list)
    type: int = UNIGRAM
    byte_fallback: bool = False
    space_after: bool = False  # the space belongs to the word before it
    charsmap: bytes = b""
    dummy_prefix: bool = True
    single_spaces: bool = True
    escapes_spaces: bool = True


class _BrokenError(ValueError):
    """The bytes are no protocol buffer of this shape."""


def read(file: Path) -> Model:
    """The content of a `.model` file."""
    try:
        model = _model(file.read_bytes())
        if not model.pieces:
            raise _BrokenError("no pieces")
        if sum(piece.type == UNKNOWN for piece in model.pieces) != 1:
            raise _BrokenError("not exactly one unknown piece")
        if len({piece.text for piece in model.pieces}) < len(model.pieces) or not all(p.text for p in model.pieces):
            raise _BrokenError("an empty piece, or one that comes twice")
        if model.charsmap:
            charsmap.check(model.charsmap)
    except ValueError as error:  # ours, or text that is not UTF-8
        given = f"not a whole SentencePiece model ({error})"
        raise InputError(file, given, "the file of a unigram or BPE model is needed", "copy it again") from None
    if model.type not in (UNIGRAM, BPE):
        given = f"a SentencePiece model of {_KINDS.get(model.type, 'an unknown kind')}"
        todo = "train one of the kinds words or chars instead"
        raise InputError(file, given, "a unigram or BPE model is needed", todo)
    if model.space_after or not model.escapes_spaces:
        given = "a SentencePiece model that writes a space after the word, or not as ▁"
        raise InputError(file, given, "▁ before the word is needed", "train the model with the usual settings")
    return model


def tokenizer_of(file: Path, model: Model, names: dict[str, str]) -> tokenizers.Tokenizer:
    """The tokenizer of a model that was read; `names` are its special pieces by role."""
    vocabulary = {piece.text: index for index, piece in enumerate(model.pieces)}
    missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary]
    if model.byte_fallback and missing:
        raise InputError(file, f"no piece {missing[0]}", "a piece for each byte is needed", "copy it again")
    try:
        tokenizer = tokenizers.Tokenizer(_unigram(model) if model.type == UNIGRAM else _pairs(model, vocabulary))
        tokenizer.normalizer = _normalizer(model)
    except Exception as error:  # tokenizers raises plain Exception
        raise InputError(file, f"unusable ({error})", "a unigram or BPE model is needed", "copy it again") from None
    prefix = "first" if model.dummy_prefix and model.single_spaces else "never"
    across = any(SPACE in piece.text[1:] for piece in model.pieces if piece.type == NORMAL)
    spaces = pre_tokenizers.Metaspace(SPACE, prefix, split=not across)
    defined = _alternatives(piece.text for piece in model.pieces if piece.type == USER_DEFINED)
    if model.type == BPE and defined:
        alone = pre_tokenizers.Split(tokenizers.Regex(defined), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, alone])
    else:
        tokenizer.pre_tokenizer = spaces
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.dummy_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    with_specials(tokenizer, names)
    others = [piece.text for piece in model.pieces if piece.type == CONTROL and piece.text not in names.values()]
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in others])
    if names.get("cls") == "<cls>" and "sep" in names:
        tokenizer.post_processor = _class_last(tokenizer, names["sep"])
    return tokenizer


def _class_last(tokenizer: tokenizers.Tokenizer, sep: str) -> processors.TemplateProcessing:
    """Where the token is called <cls> (XLNet), it stands after the text, in a segment of its own."""
    return processors.TemplateProcessing(
        single=f"$A {sep} <cls>:2",
        pair=f"$A {sep} $B:1 {sep}:1 <cls>:2",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<cls>", sep)],
    )


def _unigram(model: Model) -> models.Unigram:
    scored = [(piece.text, _DEFINED if piece.type == USER_DEFINED else piece.score) for piece in model.pieces]
    unknown = next(index for index, piece in enumerate(model.pieces) if piece.type == UNKNOWN)
    return models.Unigram(scored, unknown, model.byte_fallback)


def _pairs(model: Model, vocabulary: dict[str, int]) -> models.BPE:
    """BPE by score becomes BPE by rank: each way to make a piece of two others, the best piece first."""
    usable = {piece.text: piece.score for piece in model.pieces if piece.type in (NORMAL, UNUSED)}
    ranked = []
    for text, score in usable.items():
        for at in range(1, len(text)):
            left, right = text[:at], text[at:]
            if left in usable and right in usable:
                ranked.append((-score, vocabulary[text], vocabulary[left], left, right))
    merges = [(left, right) for *_, left, right in sorted(ranked)]
    unknown = next(piece.text for piece in model.pieces if piece.type == UNKNOWN)
    return models.BPE(
        vocabulary,
        merges,
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        ignore_merges=any(piece.type == USER_DEFINED for piece in model.pieces),
    )


def _normalizer(model: Model) -> normalizers.Sequence:
    steps: list[Any] = [normalizers.Prepend(" ")] if model.dummy_prefix and not model.single_spaces else []
    if model.charsmap:
        table = normalizers.Precompiled(model.charsmap)
        if table.normalize_str("E\u0301") == "e":  # it folds case, and would lose the accent
            steps.append(normalizers.NFC())
        steps.append(table)
    if model.single_spaces:
        edges = r" +\z" if model.dummy_prefix else r"\A +| +\z"
        steps += [normalizers.Replace(tokenizers.Regex(" {2,}"), " "), normalizers.Replace(tokenizers.Regex(edges), "")]
    return normalizers.Sequence(steps)


def _alternatives(texts: Iterator[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


# ---- the wire format


def _model(data: bytes) -> Model:
    model = Model()
    for number, value in _fields(data):
        if number == 1:
            model.pieces.append(_piece(_message(value)))
        elif number in (2, 3):
            for inner, content in _fields(_message(value)):
                name, read = _SETTINGS.get((number, inner), ("", None))
                if read is not None:
                    setattr(model, name, read(content))
    return model


def _piece(data: bytes) -> Piece:
    piece = Piece()
    for number, value in _fields(data):
        if number == 1:
            piece.text = _message(value).decode("utf-8")
        elif number == 2:
            if not isinstance(value, float) or not math.isfinite(value):
                raise _BrokenError("a score that is no number")
            piece.score = value
        elif number == 3:
            piece.type = _integer(value)
    return piece


def _message(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise _BrokenError("a number where text should be")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise _BrokenError("text where a number should be")
    return value


def _flag(value: object) -> bool:
    return bool(_integer(value))


_SETTINGS: dict[tuple[int, int], tuple[str, Callable[[object], Any]]] = {  # field of the file, field in it
    (2, 3): ("type", _integer),
    (2, 24): ("space_after", _flag),
    (2, 35): ("byte_fallback", _flag),
    (3, 2): ("charsmap", _message),
    (3, 3): ("dummy_prefix", _flag),
    (3, 4): ("single_spaces", _flag),
    (3, 5): ("escapes_spaces", _flag),
}


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of one message: number and value. Groups, which no such file has, are refused."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _BrokenError(f"wire type {kind}")
        if number == 0 or at + size > len(data):
            raise _BrokenError("it ends in the middle of a field")
        content, at = data[at : at + size], at + size
        if kind == 2:
            yield number, content
        else:
            yield number, struct.unpack("<d" if kind == 1 else "<f", content)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _BrokenError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _BrokenError("a number of more than ten bytes")
