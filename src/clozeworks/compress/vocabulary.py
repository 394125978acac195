"""Tokens that no text of a kind has."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, join_blocks, parameters
from clozeworks.core.bounds import Count
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.trim import keep_tokens, needed_tokens
from clozeworks.exchange.bundle import Bundle
from clozeworks.recipe import Recipe, assemble

CHUNK = 1000  # texts that are encoded together


@dataclass(slots=True)
class TrimVocabulary(Step):
    """The tokens stay that the texts have at least `least` times, with the special ones and with whatever is needed to
    find them again (`data.tokens.trim`): tables, tied heads and biases of words lose the other rows.

    Ids are numbered anew in their old order. A text whose tokens all stay is cut as before, and its vectors are the
    same to the bit; scores of words are those of the words that stay. Text of another kind has more unknown tokens.
    """

    name: ClassVar[str] = "vocab"
    main: ClassVar[str | None] = "least"
    teachable: ClassVar[bool] = False
    least: Count = 1

    def apply(self, bundle: B, data: Data) -> B:
        """Count tokens, choose, and take their rows out of every tensor that has one for each token."""
        recipe, tokenizer = copy_recipe(bundle), bundle.tokenizer
        if tokenizer is None:
            needed, todo = "the tokens of a text are known to it alone", "put tokenizer.json beside it"
            raise InputError(recipe.name, "a model without a tokenizer", needed, todo)
        if recipe.encoder.embed.words is not None and recipe.encoder.embed.words.scored == "clusters":
            given, needed = type(recipe.encoder.embed.words).__name__, "clusters of words are cut at numbers of ids"
            raise RecipeError(f"{recipe.name}.encoder.embed.words", given, needed, "use another step")
        counts = count_tokens(bundle, data, tokenizer)
        used = np.flatnonzero(counts >= self.least)
        if not set(used.tolist()) - tokenizer.special_ids:
            given = "no token of the text" if self.least == 1 else f"no token of the text {self.least} times"
            raise InputError("vocab", given, "nothing would be left", "give more text, or a lower count")
        texts = _encoded(data.all_texts(recipe), tokenizer) if tokenizer.unk is not None else ()
        kept = needed_tokens(tokenizer, used, (text for text, ids in texts if tokenizer.unk in ids))
        if len(kept) == recipe.encoder.vocab:
            needed = f"the text has all of the {len(kept):,} tokens"
            raise InputError("vocab", recipe.name, needed, "ask for tokens that are more frequent, or leave it out")
        if kept[-1] >= recipe.encoder.vocab:
            given = f"token {tokenizer.token(int(kept[-1]))!r}, number {kept[-1]:,}"
            needed = f"the model has {recipe.encoder.vocab:,} rows"
            raise InputError(recipe.name, given, needed, "is it the tokenizer of this model?")
        weights = parameters(bundle.model)
        rows = torch.from_numpy(kept)
        for name, axis in _by_token(recipe).items():
            weights[name] = weights[name].index_select(axis, rows)
        recipe.encoder.vocab = len(kept)
        _renumber(recipe, kept)
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights), tokenizer=keep_tokens(tokenizer, kept))


def count_tokens(bundle: Bundle, data: Data, tokenizer: Tokenizer) -> np.ndarray:
    """How often whatever there is to read has each token, int64 [vocabulary]: as text, and as the task reads it."""
    counts = np.zeros(max(tokenizer.size, bundle.recipe.encoder.vocab), np.int64)
    for ids in _ids(bundle, data, tokenizer):
        np.add.at(counts, ids, 1)
    if data.corpus is not None:
        own = data.unigram(tokenizer)
        counts[: len(own)] += own
    return counts


def _ids(bundle: Bundle, data: Data, tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    task = bundle.recipe.task
    if task is not None and data.table is not None:
        yield task.examples(data.table, tokenizer).examples.tokens.astype(np.int64)
    for _, ids in _encoded(data.all_texts(bundle.recipe), tokenizer):
        yield ids


def _encoded(texts: Iterator[str], tokenizer: Tokenizer) -> Iterator[tuple[str, np.ndarray]]:
    """Each text with its ids."""
    while chunk := list(itertools.islice(texts, CHUNK)):
        for text, encoding in zip(chunk, tokenizer.encode(chunk), strict=True):
            yield text, encoding.ids.astype(np.int64)


def _by_token(recipe: Recipe) -> dict[str, int]:
    """The tensors with a part for each token, and their dimension: those that another vocabulary makes longer."""
    before, after = (_shapes(recipe, more) for more in (0, 1))
    return {
        name: next(axis for axis, (old, new) in enumerate(zip(shape, after[name], strict=True)) if old != new)
        for name, shape in before.items()
        if shape != after[name]
    }


def _shapes(recipe: Recipe, more: int) -> dict[str, tuple[int, ...]]:
    vocab = recipe.encoder.vocab
    recipe.encoder.vocab = vocab + more
    try:
        with torch.device("meta"):
            named = assemble(recipe).named_parameters(remove_duplicate=False)
            return {name: tuple(value.shape) for name, value in named}
    finally:
        recipe.encoder.vocab = vocab


def _renumber(recipe: Recipe, kept: np.ndarray) -> None:
    """The ids that a recipe names, by their new numbers."""
    if recipe.decoder is None:
        return
    for name in ("start", "end"):
        old = getattr(recipe.decoder, name)
        if old is not None:
            at = np.flatnonzero(kept == old)
            if not len(at):
                needed = "what is written begins and ends with tokens that stay"
                raise RecipeError(f"{recipe.name}.decoder.{name}", old, needed, "use None, or a special token")
            setattr(recipe.decoder, name, int(at[0]))
