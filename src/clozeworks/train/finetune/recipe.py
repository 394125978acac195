"""A recipe for a task, made of the recipe of an encoder."""

import copy
import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tables.table import Table
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.attention import Attention
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Loss
from clozeworks.optim.optimizers.optimizer import Optimizer
from clozeworks.optim.settings import AdamW, Finetune, Keep, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import Task
from clozeworks.train.finetune import seq2seq
from clozeworks.train.finetune.batches import steps_an_epoch

RATE, WIDTH = 3e-5, 768  # the published rate (Devlin et al. 2018, A.3) and the width it was found at
BRIEF, NARROW = 1e-3, 128  # the rate of encoders that were pretrained for minutes, and its width (docs/learning.md)
SMALL = 1000  # rows, below which these are trained at half the rate
DROPOUT = 0.1  # of these, where labels are few and pretraining had none
RECURRENT = 1e-2  # the rate of recurrent models (Howard & Ruder 2018, 4.1)
FEW, MOST = 200, 20  # steps that a small set should have, and epochs that it gets for them at most
FROZEN = 1e-3  # the rate of a head on an encoder that stays as it is
LONGER = 3  # times as many steps for an encoder that begins with nothing


def choose_learning_rate(recipe: Recipe, units: int) -> float:
    """Narrower models are trained at higher rates, in pretraining and after it; those that have learned for minutes at
    higher ones again, where `units` to learn from are not few, recurrent ones at their own."""
    if recipe.recurrent:
        return RECURRENT
    if recipe.brief:
        return (BRIEF / 2 if units < SMALL else BRIEF) * NARROW / recipe.encoder.width
    return RATE * max(WIDTH / recipe.encoder.width, 1.0)


def choose_optimizer(recipe: Recipe) -> Optimizer:
    """Recurrent models forget moments sooner (Howard & Ruder 2018, 4.1)."""
    return AdamW(betas=(0.7, 0.99)) if recipe.recurrent else AdamW()


def choose_epochs(units: int, batch: int, scratch: bool = False) -> int:
    """As many as published, more where they would be few steps, and more again from fresh weights."""
    times = LONGER if scratch else 1
    return times * min(max(Finetune().epochs, -(-FEW // steps_an_epoch(units, batch))), MOST)


def make_finetune_recipe(
    recipe: Recipe,
    task: Task,
    units: int,
    tune: Finetune | None = None,
    train: Train | None = None,
    *,
    lm_weight: float = 0.0,
    decoder: Recipe | None = None,
    changes: Mapping[str, str] = MappingProxyType({}),
    unfreeze_each_epoch: bool = False,
    freeze_words: bool = False,
) -> Recipe:
    """The recipe of a run: the encoder's, with the task as its one loss, for so many units; `changes` are values of its
    fields by path, and come last. Steps follow epochs and batch size unless they are changed themselves.

    `lm_weight` is the weight of a second loss, where the encoder reads one way: predicting the next token of every
    example, specials too (Radford et al. 2018, 3.2: 0.5). It is a mean over the tokens of a step; that of the published
    code is a mean over sequences of their means, in which a word of a short text counts for more. Where the task
    writes, a decoder is made of the encoder, or of that of `decoder`; where it makes vectors, `encode` makes them so.
    """
    recipe = copy.deepcopy(recipe)
    rate = choose_learning_rate(recipe, units)
    if recipe.brief:
        add_dropout(recipe)
    if task.generation is not None:
        seq2seq.add_decoder(recipe, task.generation, decoder)
    recipe.objective.losses = (task, _words(recipe, lm_weight)) if lm_weight else (task,)
    recipe.distil, recipe.start = None, ()  # weights begin as the encoder's
    if task.encodes is not None:
        recipe.pooling = copy.deepcopy(task.encodes)
    if not task.pools:
        recipe.encoder.pooler = None
    recipe.finetune = tune or Finetune(epochs=choose_epochs(units, Finetune().batch_size))
    recipe.train = train or Train(learning_rate=rate, warmup=0.1, guard=None)
    recipe.train = dataclasses.replace(recipe.train, keep=Keep(last=1, best=True))
    recipe = copy.deepcopy(recipe)  # what was handed over stays as it is
    for path, value in changes.items():
        spec.set_path(recipe, path, value)
    recipe.encoder.embed.frozen |= freeze_words
    tune = recipe.finetune or Finetune()
    each = steps_an_epoch(units, tune.batch_size)
    steps = {"steps": each * tune.epochs, "evaluate_every": each, "save_every": each}
    unchanged = {name: value for name, value in steps.items() if f"train.{name}" not in changes}
    recipe.train = dataclasses.replace(recipe.train, **unchanged)
    if unfreeze_each_epoch and "finetune.unfreeze_every" not in changes:
        tune.unfreeze_every = each
    spec.check(recipe, recipe.name)
    return recipe


def add_dropout(recipe: Recipe) -> None:
    """Labelled rows are read many times, unlike the text of an encoder that was pretrained without dropout."""
    for _, part in spec.walk(recipe.encoder):
        if isinstance(part, Embed | Block | Attention):
            part.dropout = DROPOUT


def _words(recipe: Recipe, weight: float) -> Loss:
    """The loss that the encoder was pretrained with, or that of its kind."""
    if recipe.reading != "causal":
        needed, todo = "next tokens are predicted by models that read one way", "use 0"
        raise RecipeError(f"{recipe.name}.lm_weight", weight, needed, todo)
    own = [loss for loss in recipe.objective.losses if loss.needs.words is not None and "labels" in loss.needs.reads]
    return dataclasses.replace(own[0] if own else NextToken(), weight=weight)


def require_columns(table: Table, task: Task) -> None:
    """Refuse a table without the columns that the task learns from."""
    for at, row in enumerate(table.rows):
        for name in (*task.columns, *task.truth):
            if row.get(name) is None:
                given = f"no {name}; there are {', '.join(row) or 'no columns'}"
                raise InputError(table.where(at), given, f"{type(task).__name__.lower()} reads it", "name the column")
