"""A model for longer texts: windows instead of full attention, its positions end to end (Beltagy et al. 2020, 5).

    position p of the new table is row p mod n of the old one, whose n rows are repeated;
    query, key and value of global tokens begin as those of all others.

Where a window covers a text the new model is the old one: up to n tokens its numbers are the same. Rows before
position 0, which stand for padding, stay where they are. A pretraining without global tokens gives the new projections
no gradient, and `refresh` makes them again what the others have become.
"""

import copy
import dataclasses
from typing import TypeVar

import torch
from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.exchange import files, tensors
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.names.longformer import near
from clozeworks.nn.int8.parts import refuse_int8
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.nn.window import Window
from clozeworks.recipe import Recipe

B = TypeVar("B", bound=Bundle)
POSITIONS = "encoder.embed.positions.table.weight"
PROJECTIONS = ("query", "key", "value")
TAKE = "take a BERT, RoBERTa, ALBERT or DistilBERT"
LENGTH, WINDOW = 4096, 512  # of the paper


def lengthen(encoder: B, length: int = LENGTH, window: int = WINDOW) -> B:
    """The same weights with a window of so many tokens, half of them to either side, for texts of `length` tokens."""
    refuse_int8(encoder.recipe.name, encoder.recipe.encoder.int8 is not None, "a copy of projections")
    positions = _convertible(encoder.recipe, length, window)
    recipe = copy.deepcopy(encoder.recipe)
    stack, train = recipe.encoder.stack, recipe.train
    stack.block = tuple(near(stack.block_at(layer), Window(window // 2)) for layer in range(stack.depth))
    recipe.encoder.embed.positions = LearnedPositions(length, positions.offset)
    recipe.name = f"{recipe.name}_long"
    recipe.objective.segments.length, train.phases = length, ()
    train.batch_tokens = max(train.batch_tokens, length)
    train.micro_tokens = None if train.micro_tokens is None else max(train.micro_tokens, length)
    weights = tensors.state(encoder.model)
    weights[POSITIONS] = repeat_rows(weights[POSITIONS], positions.offset, length)
    facts = {name: value for name, value in encoder.facts.items() if name != "heldout"}  # metrics of another model
    model = files.build(recipe, _with_global(weights), recipe.name)
    return dataclasses.replace(encoder, model=model, recipe=recipe, facts=facts, unused=list(encoder.unused))


def refresh(encoder: B) -> B:
    """The same model whose global tokens have the projections of all others: where they were never trained."""
    if not _has_global(encoder.recipe):
        needed = "no layer of it has global tokens"
        raise InputError(encoder.recipe.name, "a model without windows", needed, "convert it first")
    weights = {name: tensor for name, tensor in tensors.state(encoder.model).items() if "_global." not in name}
    model = files.build(encoder.recipe, _with_global(weights), encoder.recipe.name)
    recipe, facts = copy.deepcopy(encoder.recipe), dict(encoder.facts)
    return dataclasses.replace(encoder, model=model, recipe=recipe, facts=facts, unused=list(encoder.unused))


def repeat_rows(table: Tensor, offset: int, length: int) -> Tensor:
    """[offset + n, D] -> [offset + length, D]: the first rows once, the others again and again."""
    rows = table[offset:]
    return torch.cat([table[:offset], rows.repeat(-(-length // len(rows)), 1)[:length]])


def _with_global(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    extended = dict(weights)
    for name, tensor in weights.items():
        for projection in PROJECTIONS:
            part = f".mixer.{projection}."
            if part in name:
                extended[name.replace(part, f".mixer.{projection}_global.")] = tensor.clone()
    return extended


def _has_global(recipe: Recipe) -> bool:
    return any(isinstance(mixer, GlobalWindow) for mixer in recipe.encoder.stack.mixers())


def _convertible(recipe: Recipe, length: int, window: int) -> LearnedPositions:
    """Its positions, or a refusal of what would not be the same model, or none that looks both ways."""
    stack, positions, corruption = recipe.encoder.stack, recipe.encoder.embed.positions, recipe.objective.corruption
    if window < 2 or window % 2:
        raise InputError("window", window, "an even number of tokens, half to either side, is needed", "512 is usual")
    if _has_global(recipe):
        raise InputError(recipe.name, "a model with windows", "one without is needed", "to copy them: --refresh-global")
    plain_stack = type(stack) is Stack and not stack.memory and stack.block_at(0).cross is None
    plain_attention = all(
        isinstance(mixer, Attention) and mixer.bias is None and mixer.affine and mixer.window is None
        for mixer in stack.mixers()
    )
    both_ways = corruption is None or corruption.kind == "full"
    name, window_instead = type(stack).__name__, "set encoder.stack.block.mixer.window instead"
    facts = (
        (plain_stack, f"{name} with memory" if stack.memory else name, "a plain stack of layers is needed", TAKE),
        (both_ways, "a model that reads one way", "global tokens look both ways", window_instead),
        (plain_attention, "attention of another kind", "plain attention is needed", TAKE),
        (isinstance(positions, LearnedPositions), type(positions).__name__, "a table of positions is needed", TAKE),
    )
    for holds, given, needed, todo in facts:
        if not holds:
            raise InputError(recipe.name, given, needed, todo)
    assert isinstance(positions, LearnedPositions)
    if length < positions.length:
        needed = f"the model has {positions.length} positions already"
        raise InputError("length", length, needed, f"use {positions.length} or more")
    return positions
