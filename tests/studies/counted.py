"""What the tests of counts share: models small enough to run, and batches of the shapes that are counted."""

import functools

import torch

import clozeworks as cw
from clozeworks.core.batch import Batch, from_padded
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.recipe import Recipe
from studies.scale.footprint import Shape, predicted

HIDDEN = 0.15


@functools.cache
def shape_of(name: str = "bert_large") -> Shape:
    return shape_of_recipe(cw.recipe(name))


def shape_of_recipe(recipe: Recipe) -> Shape:
    return Shape.of(recipe.encoder, recipe.objective.losses)


def tiny(
    depth: int = 2,
    weights: float = 0.1,
    states: float = 0.1,
    name: str = "bert_tiny",
    vocab: int = 300,
    inner: int = 112,
) -> Recipe:
    """`weights` and `states` are rates of dropout."""
    recipe = cw.recipe(name)
    recipe.encoder.vocab, recipe.encoder.width, recipe.encoder.stack.depth = vocab, 48, depth
    block = recipe.encoder.stack.block_at(0)
    block.mixer, block.dropout, recipe.encoder.embed.dropout = Attention(3, dropout=weights), states, states
    block.ffn = FeedForward(inner)
    return recipe


def batch_of(rows: int, length: int) -> Batch:
    """Full rows; as in a real batch, their first tokens are not predicted."""
    batch = from_padded(torch.randint(5, 100, (rows, length)))
    free = torch.arange(rows * length).view(rows, length)[:, 1:].flatten()
    batch.targets = free[: predicted(rows, length, HIDDEN)].clone()
    batch.labels = torch.randint(5, 100, batch.targets.shape)
    batch.example["pair_label"] = torch.zeros(rows, dtype=torch.long)
    return batch
