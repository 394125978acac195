"""Tokenizers on disk: `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt`, a SentencePiece `.model`."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import normalizers

from clozeworks.core.errors import InputError, is_panic, suggest
from clozeworks.core.json_reader import read_json
from clozeworks.data.tokens import pieces as tokenizer_parts
from clozeworks.data.tokens import sentencepiece
from clozeworks.data.tokens.roles import ROLES, roles
from clozeworks.data.tokens.training import KINDS

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SAMPLE = "A text, of 3 words: naïve e\u0301 中文 \U0001f600.\n"
HOLES = 100  # ids for each token at most; real vocabularies have hardly more than one
FILES = (FILE, "vocab.txt", "vocab.json", *sentencepiece.FILES)  # where several exist, the first


def read(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """The tokenizer of a file or directory, and the names that its configuration gives to roles."""
    file = _file_of(path)
    config = _config_beside(file)
    names = {role: name for role in ROLES if (name := _content(config.get(f"{role}_token")))}
    if file.suffix == ".txt":
        tokenizer = _from_vocab_txt(file, config, names)
    elif file.suffix == ".model":
        tokenizer = _from_sentencepiece(file, config, names)
    elif file.name == "vocab.json":
        tokenizer = _from_merges(file, config, names)
    else:
        with _explain(file):
            read_json(file, dict)  # the library's own parser has no bound on depth
            tokenizer = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        check_ids(tokenizer, file)
    with _explain(file):
        _try_out(tokenizer)
    return tokenizer, names


@contextlib.contextmanager
def _explain(file: Path) -> Iterator[None]:
    """What the library says of a file as a sentence: it raises plain Exception, and its panics are not even that."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        given = f"not a tokenizer file ({error})"
        raise InputError(file, given, "a tokenizer.json of the tokenizers library is needed", "check it") from None


def _try_out(tokenizer: tokenizers.Tokenizer) -> None:
    """Use each part once: some panic with any text. What they refuse in words is said where it is met."""
    tokenizer.no_truncation()  # a file may carry lengths that nobody has
    tokenizer.no_padding()
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    with contextlib.suppress(Exception):
        tokenizer.decode(tokenizer.encode(SAMPLE).ids)
    with contextlib.suppress(Exception):
        _ = normalizer is not None and normalizer.normalize_str(SAMPLE)
    with contextlib.suppress(Exception):
        _ = pre_tokenizer is not None and pre_tokenizer.pre_tokenize_str(SAMPLE)


def check_ids(tokenizer: tokenizers.Tokenizer, file: Path) -> None:
    """Raise `InputError` for ids far beyond the number of tokens: tables have a row for every id."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    token, largest = max(vocabulary.items(), key=lambda item: item[1], default=("", -1))
    if largest >= HOLES * len(vocabulary) + HOLES:
        given = f"{token!r} has id {largest:,} among {len(vocabulary):,} tokens"
        raise InputError(file, given, "ids are numbered without great gaps", "number its tokens from 0")


def _file_of(path: Path) -> Path:
    if path.is_dir():
        for name in FILES:
            if (path / name).is_file():
                return path / name
        needed = f"{FILE}, vocab.txt, vocab.json with merges.txt, or a SentencePiece model is needed"
        raise InputError(path, "no tokenizer in this directory", needed, "check the path")
    if not path.is_file():
        needed = f"a tokenizer ({', '.join(KINDS)}, or a path) is needed"
        raise InputError(path, "no such file", needed, suggest(str(path), KINDS))
    if path.suffix not in (".json", ".txt", ".model"):
        needed = "a tokenizer.json, a vocab.txt, vocab.json with merges.txt, or a SentencePiece .model is needed"
        raise InputError(path, f"unknown ending {path.suffix!r}", needed, "convert it to tokenizer.json")
    return path.with_name("vocab.json") if path.name == "merges.txt" else path


def _config_beside(file: Path) -> dict[str, Any]:
    """special_tokens_map.json and tokenizer_config.json beside a file, the latter having the last word."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", CONFIG):
        beside = file.parent / name
        if beside.is_file():
            try:
                config.update(read_json(beside, dict))
            except ValueError as error:
                given = f"not JSON ({error})"
                raise InputError(beside, given, "a JSON object is needed", "mend or remove it") from None
    return config


def _content(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _lowercase(config: dict[str, Any], pieces: Iterable[str]) -> bool:
    """As the configuration says; if it says nothing, a vocabulary with capitals was made for cased text."""
    stated = config.get("do_lower_case")
    if stated is not None:
        return bool(stated)
    return not any(piece != piece.lower() for piece in pieces if not re.fullmatch(r"[\[<].*[\]>]", piece))


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
        needed = "a vocabulary, one piece a line, is needed"
        raise InputError(file, f"{len(vocabulary)} pieces", needed, "check the file")
    normalizer = tokenizer_parts.wordpiece_normalizer(
        _lowercase(config, pieces), config.get("strip_accents"), config.get("tokenize_chinese_chars", True)
    )
    return tokenizer_parts.wordpiece_tokenizer(vocabulary, normalizer, roles(vocabulary, names))


def _from_merges(file: Path, config: dict[str, Any], names: dict[str, str]) -> tokenizers.Tokenizer:
    """Two kinds have these files: in the older, words end in `</w>`; in the other, bytes stand for characters."""
    merges = file.with_name("merges.txt")
    if not merges.is_file():
        raise InputError(file, "no merges.txt beside it", "BPE is two files", "put merges.txt beside it")
    try:
        vocabulary = read_json(file, dict)
        lines = [line.rstrip("\r") for line in merges.read_text(encoding="utf-8").split("\n") if line]
        pairs = [(left, right) for left, right in (line.split(" ") for line in lines if line[:8] != "#version")]
        specials = roles(vocabulary, names)
        if any(piece.endswith(tokenizer_parts.END) for piece in vocabulary):
            letters = (piece.removesuffix(tokenizer_parts.END) for piece in vocabulary)
            normalizer = tokenizer_parts.wordpiece_normalizer(_lowercase(config, letters))
            return tokenizer_parts.suffix_tokenizer(vocabulary, pairs, normalizer, specials)
        return tokenizer_parts.byte_level_tokenizer(vocabulary, pairs, specials, config.get("add_prefix_space", False))
    except InputError:
        raise
    except Exception as error:  # ValueError of ours, plain Exception of tokenizers
        raise InputError(file, f"unreadable ({error})", "the files of a BPE are needed", "check them") from None


def _from_sentencepiece(file: Path, config: dict[str, Any], names: dict[str, str]) -> tokenizers.Tokenizer:
    """A `.model` file says all but whether text was lower-cased before it."""
    model = sentencepiece.read(file)
    normal = [piece.text for piece in model.pieces if piece.type == sentencepiece.NORMAL]
    special = {piece.text for piece in model.pieces if piece.type != sentencepiece.NORMAL}
    tokenizer = sentencepiece.tokenizer_of(file, model, roles(special, names))
    stated = config.get("do_lower_case")
    # Models with specials in brackets come with a program that lower-cases; of others the file is the whole truth.
    if stated or (stated is None and "[CLS]" in special and _lowercase({}, normal)):
        accents = [] if config.get("keep_accents") else [normalizers.NFKD(), normalizers.StripAccents()]
        quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        tokenizer.normalizer = normalizers.Sequence(
            [*quotes, *accents, normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        )
    return tokenizer
