"""A model that learns new words: more rows for its word table, no old id moved."""

import copy

import torch
from torch import Tensor

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.errors import InputError
from clozeworks.exchange import tensors
from clozeworks.model import Model
from clozeworks.text_encoder import TextEncoder

TABLE, BIAS = "encoder.embed.words.table.weight", "heads.masked_lm.bias"


def grow(encoder: TextEncoder, tokenizer: Tokenizer) -> TextEncoder:
    """The same model under a larger tokenizer.

    The row of a new token, and its bias in the masked-LM head, start as the mean of the rows of the pieces that the
    old tokenizer cuts it into, so that a text in new tokens begins near where it was in old ones. A tokenizer under
    which an old token has another id is refused.
    """
    old = encoder.tokenizer
    if old is None:
        given, needed = "a model without a tokenizer", "its old pieces are needed to start new ones"
        raise InputError(encoder.recipe.name, given, needed, "put tokenizer.json beside it")
    _same_ids(encoder.recipe.name, old, tokenizer)
    recipe = copy.deepcopy(encoder.recipe)
    recipe.encoder.vocab = max(recipe.encoder.vocab, tokenizer.size)
    weights = tensors.state(encoder.model)
    pieces = {index: _pieces(old, tokenizer.token(index)) for index in range(old.size, tokenizer.size)}
    for name in (TABLE, BIAS):
        if name in weights:
            weights[name] = _grown(weights[name], recipe.encoder.vocab, pieces)
    with torch.random.fork_rng():
        model = Model(recipe.encoder, recipe.objective.losses)
    tensors.assign(model, weights, recipe.name)
    return TextEncoder(model.eval(), tokenizer, recipe, dict(encoder.facts), list(encoder.unused))


def is_larger(old: Tokenizer, new: Tokenizer) -> bool:
    """Whether the new tokenizer keeps every old id and adds some."""
    return new.size > old.size and _moved(old, new) is None


def _same_ids(name: str, old: Tokenizer, new: Tokenizer) -> None:
    moved = _moved(old, new)
    if moved is not None:
        now = new.id(moved)
        there = "unknown to the data" if now is None else f"token {now} of the data"
        given = f"{moved!r} is token {old.id(moved)} of the model and {there}"
        todo = "prepare the data with --tokenizer set to the model's directory; --add-tokens FILE adds words"
        raise InputError(name, given, "old tokens must keep their ids", todo)


def _moved(old: Tokenizer, new: Tokenizer) -> str | None:
    """The first token whose id changed."""
    known = sorted(old.inner.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    return next((token for token, index in known if new.id(token) != index), None)


def _pieces(old: Tokenizer, text: str) -> list[int]:
    return [int(index) for index in old.encode([text])[0].ids]


def _grown(table: Tensor, rows: int, pieces: dict[int, list[int]]) -> Tensor:
    out = table.new_empty(rows, *table.shape[1:])
    out[: len(table)] = table
    out[len(table) :] = table.mean(0)  # rows that no token uses
    for index, old in pieces.items():
        out[index] = table[old].mean(0) if old else table.mean(0)
    return out
