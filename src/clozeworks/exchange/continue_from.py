"""Continuing from a model that exists: its encoder and heads, the recipe's objective and training."""

import copy
import dataclasses
from typing import TypeVar

from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.grow import grow, is_larger
from clozeworks.model import Pooler
from clozeworks.optim.settings import Adagrad
from clozeworks.recipe import Recipe

B = TypeVar("B", bound=Bundle)
RATE = 1e-4  # that trained weights bear (Gururangan et al. 2020, appendix), of Adam and its kind


def continue_recipe(recipe: Recipe, source: B, tokenizer: Tokenizer) -> tuple[Recipe, B, list[str]]:
    """The recipe around the source's encoder, the source under the data's tokenizer, and what to tell the user."""
    source, notes = _adapt_tokenizer(source, tokenizer)
    theirs, recipe = source.recipe, copy.deepcopy(recipe)
    notes += _describe_shape(recipe, theirs)
    recipe.encoder, recipe.decoder = copy.deepcopy(theirs.encoder), copy.deepcopy(theirs.decoder)
    heads = {loss.name: loss for loss in theirs.objective.losses}
    recipe.objective.losses = tuple(
        dataclasses.replace(copy.deepcopy(heads[loss.name]), weight=loss.weight) if loss.name in heads else loss
        for loss in recipe.objective.losses
    )
    for name in heads.keys() - {loss.name for loss in recipe.objective.losses}:
        notes.append(f"the head {name} is left behind: {recipe.name} does not train it")
    if recipe.encoder.pooler is None and any(loss.pools for loss in recipe.objective.losses):
        recipe.encoder.pooler = Pooler()
    if "pair_label" in recipe.objective.segments.writes and recipe.encoder.embed.segments < 2:
        given = f"{recipe.name} learns from pairs"
        raise InputError("--from", given, "this model has one segment type", "take a recipe such as roberta_mini")
    return recipe, source, notes


def lower_learning_rate(recipe: Recipe) -> list[str]:
    """Continue at a tenth of the rate of fresh weights, 1e-4 at most, and say so.

    60 steps at 1e-3 cost a model of six layers 6 to 9 points of SST-2, at 1e-4 none. A rate that is no higher stays as
    it is, and so do those of recurrent models and of Adagrad, whose rates are of another order.
    """
    fresh = recipe.train.learning_rate
    if fresh <= RATE or recipe.recurrent or isinstance(recipe.train.optimizer, Adagrad):
        return []
    recipe.train.learning_rate = min(fresh / 10, RATE)
    rate = f"learning rate {recipe.train.learning_rate:.1e} instead of {fresh:.1e}"
    return [f"{rate}, which is for fresh weights and would undo what the model has learned (--learning-rate sets it)"]


def _adapt_tokenizer(source: B, tokenizer: Tokenizer) -> tuple[B, list[str]]:
    """The source with rows for every token of the data, and what to tell the user; other ids are refused."""
    own = source.tokenizer
    if own is None:
        return source, ["the model brings no tokenizer: that its ids are those of the data is taken on trust"]
    if own.fingerprint == tokenizer.fingerprint:
        return source, []
    if not is_larger(own, tokenizer) and tokenizer.size == own.size:
        todo = "prepare the text again with --tokenizer set to the model's directory"
        raise InputError("--data", "another tokenizer than the model has", "token ids must keep their meaning", todo)
    grown = grow(source, tokenizer)
    added = tokenizer.size - own.size
    return grown, [f"{added:,} new token{'s' if added > 1 else ''}: each row starts as the mean of its old pieces"]


def _describe_shape(recipe: Recipe, theirs: Recipe) -> list[str]:
    """What of the recipe's encoder gives way to the source's."""
    changes = spec.diff(recipe.encoder, theirs.encoder)
    names = {"width": "width", "stack.depth": "depth", "embed.positions.length": "positions"}
    shown = [f"{names[path]} {new} ({recipe.name} has {old})" for path, (old, new) in changes.items() if path in names]
    return [f"the encoder is that of {theirs.name}: {', '.join(shown)}"] if shown else []
