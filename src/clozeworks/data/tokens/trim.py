"""A tokenizer with some of its tokens alone, that cuts whatever these spell as it did before.

WordPiece   the longest piece of the vocabulary first: whatever is used is still the longest. A word that was
            unknown stays unknown if the pieces stay which led into its dead end.
BPE         the first pair of the list of merges first: whatever was merged still is, if every merge stays that
            makes a token which stays, with the two tokens that it is made of.
Unigram     the best sum of scores: whatever was the best still is. The score of an unknown character is 10 below
            the lowest of the vocabulary, so that one stays.
words       a word is in the list or unknown.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tokenizers

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer

LONGEST = 100  # characters of a word beyond which WordPiece does not look, where it says nothing else


def needed_tokens(tokenizer: Tokenizer, used: Iterable[int], texts: Iterable[str] = ()) -> np.ndarray:
    """The ids that must stay for the `used` ones to be found again: these, their parents and the special tokens;
    int64, in order. `texts` are those whose unknown words are to stay unknown."""
    state = json.loads(tokenizer.inner.to_str())
    model, ids = state["model"], {*map(int, used), *tokenizer.special_ids}
    kind = model["type"]
    vocabulary = _vocabulary(model)
    if kind == "BPE":
        names = {name for name, index in vocabulary.items() if index in ids}
        ids |= {vocabulary[name] for name in _parents(model, names)}
        if "ByteLevel" in json.dumps(state.get("pre_tokenizer")):  # a byte without a token would be lost silently
            ids |= {index for name, index in vocabulary.items() if len(name) == 1}
    elif kind == "WordPiece" and tokenizer.unk in ids:
        ids |= {vocabulary[name] for name in _dead_ends(tokenizer.inner, model, texts)}
    elif kind == "Unigram":
        ids.add(min(range(len(model["vocab"])), key=lambda index: model["vocab"][index][1]))
    if model.get("byte_fallback"):
        ids |= {index for name, index in vocabulary.items() if name.startswith("<0x")}
    if isinstance(model.get("unk_token"), str) and model["unk_token"] in vocabulary:
        ids.add(vocabulary[model["unk_token"]])
    if model.get("unk_id") is not None:
        ids.add(model["unk_id"])
    return np.array(sorted(ids), np.int64)


def keep_tokens(tokenizer: Tokenizer, kept: Sequence[int] | np.ndarray) -> Tokenizer:
    """The tokenizer of these tokens, numbered in the order that they had."""
    new = {int(old): number for number, old in enumerate(kept)}
    state: dict[str, Any] = json.loads(tokenizer.inner.to_str())
    model = state["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for index, entry in enumerate(model["vocab"]) if index in new]
        model["unk_id"] = None if model.get("unk_id") is None else new[model["unk_id"]]
    else:
        model["vocab"] = {name: new[index] for name, index in model["vocab"].items() if index in new}
    if model["type"] == "BPE":
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            merge for merge in model["merges"]
            if {*_pair(merge), _merged(*_pair(merge), prefix)} <= model["vocab"].keys()
        ]  # fmt: skip
    state["added_tokens"] = [{**token, "id": new[token["id"]]} for token in state["added_tokens"] if token["id"] in new]
    _renumber(state.get("post_processor"), {tokenizer.token(old): number for old, number in new.items()})
    trimmed = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), tokenizer.names)
    moved = [old for old, number in new.items() if trimmed.id(tokenizer.token(old)) != number]
    if moved or trimmed.size != len(new):
        given = f"token {tokenizer.token(moved[0])!r}" if moved else f"{trimmed.size} tokens"
        needed = "its file would give the tokens that stay other numbers"
        raise InputError("tokenizer", given, needed, "keep the whole vocabulary")
    return trimmed


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    if model["type"] == "Unigram":
        return {piece: index for index, (piece, _) in enumerate(model["vocab"])}
    return model["vocab"]


def _pair(merge: str | list[str]) -> tuple[str, str]:
    """The two tokens of a merge, which older files write as one string."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _merged(first: str, second: str, prefix: str) -> str:
    return first + second.removeprefix(prefix)


def _parents(model: dict[str, Any], names: set[str]) -> set[str]:
    """The tokens that these are merged from, and those from which these are, by every merge that makes one."""
    prefix, made = model.get("continuing_subword_prefix") or "", dict[str, list[tuple[str, str]]]()
    for merge in model["merges"]:
        made.setdefault(_merged(*_pair(merge), prefix), []).append(_pair(merge))
    parents, pending = set[str](), list(names)
    while pending:
        for part in (part for pair in made.get(pending.pop(), ()) for part in pair):
            if part not in parents and part not in names:
                parents.add(part)
                pending.append(part)
    return parents


def _dead_ends(inner: tokenizers.Tokenizer, model: dict[str, Any], texts: Iterable[str]) -> set[str]:
    """The pieces at the beginning of unknown words: with a shorter one in its place, the rest might be spelt."""
    vocabulary, prefix = model["vocab"], model.get("continuing_subword_prefix", "##")
    longest, words = model.get("max_input_chars_per_word", LONGEST), set[str]()
    for text in texts:
        normal = text if inner.normalizer is None else inner.normalizer.normalize_str(text)
        cut = [(normal, None)] if inner.pre_tokenizer is None else inner.pre_tokenizer.pre_tokenize_str(normal)
        words.update(word for word, _ in cut if len(word) <= longest)
    pieces = set[str]()
    for word in words:
        matched, begin = list[str](), 0
        while begin < len(word):
            starts = (
                word[begin:end] if begin == 0 else prefix + word[begin:end] for end in range(len(word), begin, -1)
            )
            piece = next((piece for piece in starts if piece in vocabulary), None)
            if piece is None:
                pieces.update(matched)
                break
            matched.append(piece)
            begin += len(piece) - (len(prefix) if begin else 0)
    return pieces


def _renumber(state: Any, new: dict[str, int]) -> None:
    """Give the special tokens of a post-processor their new ids, wherever it has them."""
    if isinstance(state, list):
        if len(state) == 2 and isinstance(state[0], str) and isinstance(state[1], int):  # ["[SEP]", 102]
            state[1] = new[state[0]]
        for each in state:
            _renumber(each, new)
    elif isinstance(state, dict):
        if {"ids", "tokens"} <= state.keys():
            state["ids"] = [new[name] for name in state["tokens"]]
        for each in state.values():
            _renumber(each, new)
