"""A directory in another library's format is read back before it is called done.

Every field of the model must come back as it was: what a family's class cannot hold is refused by its name. Then the
model that was read must give what the exported one gives, on random ids: if it does not, an exporter is wrong.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.errors import RecipeError
from clozeworks.exchange.config_table import NO_SUCH_PART, OWN_FORMAT, refuse_differences, respell
from clozeworks.exchange.names import Family
from clozeworks.exchange.templates import has_segments
from clozeworks.model import Model
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.losses.sentence_relation import SentenceRelationLayer
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import TaskLayer

TOLERANCE = 1e-5  # of the largest number, and of 1
ROWS, LENGTH = 2, 24
VECTORS = dict.fromkeys(("hidden states", "pooled vectors", "query stream")).keys()
TRAINING = ("weight", "smoothing", "spread", "prior")  # of a loss: its head is the same


def compare_recipes(recipe: Recipe, written: Recipe, again: Recipe, unsaid: tuple[str, ...]) -> None:
    """Raise `RecipeError` for the first field that came back neither as in the exported recipe nor as the hooks of the
    family have `written` it, which is the same model."""
    refuse_differences((respell(recipe), respell(written)), respell(again), unsaid)
    if recipe.reading != again.reading:
        needed = f"the Hugging Face class reads {'both ways' if again.reading == 'full' else 'one way'}"
        given = type(recipe.objective.corruption).__name__
        raise RecipeError(f"{recipe.name}.objective.corruption", given, needed, OWN_FORMAT)
    read = {loss.name: loss for loss in again.objective.losses}
    for index, loss in enumerate(written.objective.losses):
        where = f"objective.losses.{index}"
        for path, (given, _) in spec.diff(loss, read.get(loss.name), where).items():
            if not path.endswith(tuple(f"{where}.{name}" for name in TRAINING)):
                raise RecipeError(f"{recipe.name}.{path}", given, NO_SUCH_PART, OWN_FORMAT)


def compare_outputs(model: Model, again: Model, recipe: Recipe, family: Family) -> None:
    """Raise `RuntimeError` if a model as read again gives other scores than the exported one, or, where it has no head,
    other vectors."""
    device = next(model.parameters()).device
    batch = draw_batch(recipe).to(device)
    expected, given = compute(model, batch), compute(again.to(device), batch)
    for name in given.keys() - VECTORS or given.keys() & expected.keys():
        mine, theirs = expected[name], given[name]
        if family.reorders and name in VECTORS:
            mine, theirs = mine.sort(-1).values, theirs.sort(-1).values
        apart = (mine - theirs).abs().max().item()
        if not apart <= TOLERANCE * max(1.0, mine.abs().max().item()):
            raise RuntimeError(
                f"{family.model_type}: {name} of the written model differ by {apart:.2g}, so nothing was written; "
                f"this is a mistake of clozeworks: please report it with the recipe {recipe.name}"
            )


def draw_batch(recipe: Recipe) -> Batch:
    """Random ids for an encoder, or for one with a decoder, with all that its parts tell apart."""
    generator = torch.Generator().manual_seed(0)
    length = min(LENGTH, recipe.length)
    tokens, more = (torch.randint(0, recipe.encoder.vocab, (ROWS, length), generator=generator) for _ in range(2))
    segment = (torch.arange(length) >= length // 2).long().expand(ROWS, length) if has_segments(recipe) else None
    if recipe.decoder is not None:
        return from_padded(more, kind="causal").replace(source=from_padded(tokens, segment=segment))
    marked = None
    if any(isinstance(mixer, GlobalWindow) for mixer in recipe.encoder.stack.mixers()):
        marked = (torch.arange(length) == 0).expand(ROWS, length)
    batch = from_padded(tokens, segment=segment, kind=recipe.reading, marked=marked)
    batch.lasts = batch.firsts + length - 1
    if isinstance(recipe.encoder.stack, TwoStream):  # every other token is asked for, from those between
        order = (torch.arange(length) % 2).expand(ROWS, length)
        info = dataclasses.replace(batch.token_info, appears=order, sees=order)
        batch = batch.replace(token_info=info, kind="order", targets=order.flatten().nonzero()[:, 0])
    return batch


@torch.no_grad()
def compute(model: Model, batch: Batch) -> dict[str, Tensor]:
    """Vectors and scores of a batch by name."""
    hidden = model.read(batch, ())
    outputs: dict[str, Tensor | None] = dict(
        zip(VECTORS, (hidden.last, hidden.pooled, hidden.query_stream), strict=True)
    )
    for name, head in model.heads.items():
        layer: Any = head
        if isinstance(head, TaskLayer):
            outputs |= {f"{name} {key}": value for key, value in head.named_logits(hidden, batch).items()}
        elif isinstance(head, SentenceRelationLayer):
            outputs[name] = None if hidden.pooled is None else head.logits(hidden.pooled)
        elif hasattr(head, "logits"):
            outputs[name] = layer.logits(hidden.last if hidden.query_stream is None else hidden.query_stream)
    return {name: output for name, output in outputs.items() if output is not None}
