"""A model that learns new words: more rows for its word table, no old id moved."""

import copy
import dataclasses
from typing import TypeVar

import torch
from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import files, tensors
from clozeworks.exchange.bundle import Bundle
from clozeworks.nn.characters import spelled
from clozeworks.nn.int8.parts import refuse_int8
from clozeworks.tasks.template import InputTemplate

B = TypeVar("B", bound=Bundle)
TABLE, BIAS = "encoder.embed.words.table.weight", "heads.masked_lm.bias"
SPELLING = "encoder.embed.words.spelling"
ROWS = (TABLE, BIAS, "heads.masked_lm.head.weight", "heads.next_token.bias", "heads.next_token.head.weight")


def grow(encoder: B, tokenizer: Tokenizer) -> B:
    """The same model under a larger tokenizer.

    The row of a new token, in the table and in the heads, starts as the mean of the rows of the pieces that the old
    tokenizer cuts it into, so that a text in new tokens begins near where it was in old ones. A tokenizer under
    which an old token has another id is refused.
    """
    refuse_int8(encoder.recipe.name, encoder.recipe.encoder.int8 is not None, "a larger table")
    old = _tokenizer_of(encoder, "its old pieces are needed to start new ones")
    _same_ids(encoder.recipe.name, old, tokenizer)
    recipe = copy.deepcopy(encoder.recipe)
    recipe.encoder.vocab = max(recipe.encoder.vocab, tokenizer.size)
    weights = tensors.state(encoder.model)
    pieces = {index: _pieces(old, tokenizer.token(index)) for index in range(old.size, tokenizer.size)}
    for name in ROWS:
        if name in weights:
            weights[name] = _grow_rows(weights[name], recipe.encoder.vocab, pieces)
    if SPELLING in weights:  # a new word needs no more than to be written
        names = [tokenizer.token(index) for index in range(old.size, recipe.encoder.vocab)]
        known = weights[SPELLING][: old.size]
        weights[SPELLING] = torch.cat([known, torch.from_numpy(spelled(names, known.shape[1], {})[0])])
    with torch.random.fork_rng():
        model = files.build(recipe, weights, recipe.name)
    facts, unused = dict(encoder.facts), list(encoder.unused)
    return dataclasses.replace(encoder, model=model, tokenizer=tokenizer, recipe=recipe, facts=facts, unused=unused)


def add_template_tokens(encoder: B, template: InputTemplate) -> B:
    """The same model with the special tokens that a task's template has and its tokenizer lacks (Radford et al. 2018).

    Their rows are fresh, N(0, the deviation that the model began with); where nothing lacks, it is the model itself.
    """
    old = _tokenizer_of(encoder, "its texts are made of tokens")
    names = dict.fromkeys((*template.opening, *template.between, *template.closing))
    lacking = [name for name in names if old.id(name) is None]
    if not lacking:
        return encoder
    grown = grow(encoder, old.add_specials(lacking))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in grown.model.named_parameters():
            if name in ROWS and name.endswith("weight"):
                rows = parameter[old.size : old.size + len(lacking)]
                rows.normal_(0.0, grown.recipe.encoder.init, generator=generator)
    return grown


def _tokenizer_of(encoder: Bundle, needed: str) -> Tokenizer:
    if encoder.tokenizer is None:
        raise InputError(encoder.recipe.name, "a model without a tokenizer", needed, "put tokenizer.json beside it")
    return encoder.tokenizer


def is_larger(old: Tokenizer, new: Tokenizer) -> bool:
    """Whether the new tokenizer keeps every old id and adds some."""
    return new.size > old.size and _first_moved(old, new) is None


def _same_ids(name: str, old: Tokenizer, new: Tokenizer) -> None:
    moved = _first_moved(old, new)
    if moved is not None:
        now = new.id(moved)
        there = "unknown to the data" if now is None else f"token {now} of the data"
        given = f"{moved!r} is token {old.id(moved)} of the model and {there}"
        todo = "prepare the data with --tokenizer set to the model's directory; --add-tokens FILE adds words"
        raise InputError(name, given, "old tokens must keep their ids", todo)


def _first_moved(old: Tokenizer, new: Tokenizer) -> str | None:
    """The first token whose id changed."""
    known = sorted(old.inner.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    return next((token for token, index in known if new.id(token) != index), None)


def _pieces(old: Tokenizer, text: str) -> list[int]:
    return [int(index) for index in old.encode([text])[0].ids]


def _grow_rows(table: Tensor, rows: int, pieces: dict[int, list[int]]) -> Tensor:
    out = table.new_empty(rows, *table.shape[1:])
    out[: len(table)] = table
    out[len(table) :] = table.mean(0)  # rows that no token uses
    for index, old in pieces.items():
        out[index] = table[old].mean(0) if old else table.mean(0)
    return out
