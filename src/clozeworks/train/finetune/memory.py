"""Whether a step of fine-tuning fits into memory, by the lengths of its rows; where not, gradient accumulation."""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.dropout import DropoutKey
from clozeworks.data.batches.labelled import Labelled, order
from clozeworks.recipe import Recipe, assemble
from clozeworks.train.finetune.batches import steps_an_epoch
from clozeworks.train.resources.cost import MemoryCost
from clozeworks.train.resources.footprint import Fused, Meter
from clozeworks.train.resources.memory_check import available, free_bytes, gigabytes

SHARE = 0.5  # of the free memory that a run takes unasked
PLAIN = 0.1  # where a bound is below this share, nothing is measured
WIDTHS, LENGTHS = 100, 64  # numbers that a block keeps for a token, at most: so many widths, and lengths for attention
LOGITS = 3  # logits, their exponentials and their gradient


@dataclass(frozen=True, slots=True)
class StepShape:
    """Tokens of the largest step of a run, of its widest unit, and of the longest example, its two sides apart."""

    tokens: int
    unit: int
    source: int  # 0 where there is one side
    example: int


def largest_step(labelled: Labelled, recipe: Recipe) -> StepShape:
    """Over all epochs of the run: the order of each is known."""
    tune, train, lengths = recipe.finetune, recipe.train, labelled.lengths
    assert tune is not None
    batch = tune.batch_size
    epochs = -(-train.steps // steps_an_epoch(len(labelled), batch))
    most = 0
    for epoch in range(epochs):
        shuffled = lengths[order(len(labelled), train.seed, epoch)]
        most = max(most, int(np.add.reduceat(shuffled, np.arange(0, len(shuffled), batch)).max()))
    sides = labelled.sizes.max(0) if labelled.two_sided else (0, np.diff(labelled.examples.first).max())
    return StepShape(most, int(lengths.max()), *map(int, sides))


def measure_finetuning(recipe: Recipe, shape: StepShape) -> MemoryCost:
    """Parameters and memory of a step, worked off in pieces of `train.micro_tokens`: shapes flow, nothing is computed.

    Rows are as long as the longest example, one document each. Heads of a task are small and left out, but not logits
    over the vocabulary. Of a frozen encoder nothing is kept for a backward pass.
    """
    train, frozen = recipe.train, recipe.finetune is not None and recipe.finetune.freeze
    piece = min(shape.tokens, max(train.micro_tokens or shape.tokens, shape.unit))
    rows = -(-piece // (shape.source + shape.example))
    with torch.device("meta"):
        model = assemble(recipe)
    for stack in model.stacks:
        stack.recompute = train.recompute
    batch = from_padded(torch.zeros(rows, shape.example, dtype=torch.long)).to("meta")
    if model.decoder is not None:
        batch.source = from_padded(torch.zeros(rows, max(shape.source, 1), dtype=torch.long)).to("meta")
    if frozen:
        model.freeze()
    meter = Meter()
    meter.ignore(model.parameters())
    with meter, Fused():
        for number in range(min(2, -(-shape.tokens // piece))):  # the second finds the gradients of the first
            hidden = model.read(batch, (), key=DropoutKey.make(0, 0, number).to("meta")).last
            if hidden.requires_grad:
                hidden.sum().backward()
    predicts = any(loss.needs.words is not None for loss in recipe.objective.losses)
    logits = 4 * LOGITS * rows * shape.example * recipe.encoder.vocab if predicts else 0
    learns = {name: each.numel() for name, each in model.named_parameters() if each.requires_grad}
    return MemoryCost(
        sizes=learns,
        rows=rows,
        length=shape.source + shape.example,
        tokens=shape.tokens,
        kept=train.optimizer.kept,
        spare=train.optimizer.spare,
        passes=meter.peak + logits,
        teacher=sum(each.numel() for each in model.parameters()) - sum(learns.values()),  # weights, and no more
    )


def choose_micro_tokens(recipe: Recipe, labelled: Labelled, device: str) -> list[str]:
    """Set `train.micro_tokens` where a step would take more than half of the free memory, and say so.

    Pieces are the largest power of two that fits; a unit, such as the options of a question, is never torn apart.
    """
    held, beside = available(device)
    free, shape = held + (beside or 0), largest_step(labelled, recipe)
    if beside is None or bound_activations(recipe, shape) < PLAIN * free:
        return []
    need, task = needed_bytes(recipe, shape, device), recipe.task
    if need <= SHARE * free:
        return [f"needs about {gigabytes(need)} of memory; {gigabytes(free)} are free"]
    short = f"a step of {shape.tokens:,} tokens needs about {gigabytes(need)} of memory, and {gigabytes(free)} are free"
    if task is None or task.needs_whole_step:
        return [f"{short}; if that is too little, use a smaller --batch-size"]
    smaller, pieces = copy.deepcopy(recipe), 1 << (shape.tokens - 1).bit_length()
    while need > SHARE * free and pieces // 2 >= shape.unit:
        smaller.train.micro_tokens = pieces = pieces // 2
        need = needed_bytes(smaller, shape, device)
    recipe.train.micro_tokens = smaller.train.micro_tokens
    if recipe.train.micro_tokens is None:
        return [f"{short}; if that is too little, use a smaller --max-length, or a smaller model"]
    return [f"{short}: gradient accumulation over pieces of {pieces:,} tokens (train.micro_tokens), {gigabytes(need)}"]


def needed_bytes(recipe: Recipe, shape: StepShape, device: str) -> int:
    return free_bytes(measure_finetuning(recipe, shape), device).need


def bound_activations(recipe: Recipe, shape: StepShape) -> int:
    """Bytes that the blocks keep of a step at most, without a measurement."""
    depth = recipe.encoder.stack.depth + (0 if recipe.decoder is None else recipe.decoder.stack.depth)
    return 4 * shape.tokens * depth * (WIDTHS * recipe.encoder.width + LENGTHS * shape.example)
