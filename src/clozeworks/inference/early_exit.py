"""Answers of a classifier with early exits: after each exit the texts that are left are packed into rows anew.

So a text that is answered early takes no part in any later layer, alone or among others, and a batch in which all are
answered ends there.
"""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.examples import ragged_arange
from clozeworks.core.token_info import PADDING, DocumentLayout
from clozeworks.data.batches.labelled import pack_examples
from clozeworks.model import Model, places
from clozeworks.tasks.early_exit import ExitsLayer
from clozeworks.tasks.task import Task


def find_exits(model: Model) -> ExitsLayer | None:
    """The exits of a model, where it has some that are ever taken."""
    exits = model.head("exits")
    return exits if isinstance(exits, ExitsLayer) and exits.threshold > 0 else None


@torch.no_grad()
def answer_early(model: Model, task: Task, exits: ExitsLayer, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits [N, labels] of each example, and int64 [N] how many layers it passed through."""
    encoder = model.encoder
    context = batch.context(positions=places((task,), batch))
    x = encoder.embed(batch.tokens, batch.token_info, context)
    left = torch.arange(len(batch.firsts), device=x.device)  # the examples without an answer, as they stand in `batch`
    logits = x.new_zeros(len(left), len(exits.head.out.weight))
    passed = torch.zeros_like(left)
    begin = 0
    for number, layer in enumerate(exits.after):
        x = encoder.stack.run(x, context, begin, layer)
        begin, given = layer, exits.logits_after(number, x, batch)
        sure = exits.sure(given)
        logits[left[sure]], passed[left[sure]] = given[sure], layer
        if sure.all():
            return logits, passed
        if sure.any():
            batch, x, kept = keep_examples(batch, x, (~sure).nonzero()[:, 0])
            context, left = batch.context(positions=places((task,), batch)), left[kept]
    depth = len(encoder.stack.blocks)
    hidden = Hidden(encoder.stack.run(x, context, begin, depth), real=batch.token_info.document != PADDING)
    if task.pools and encoder.pooler is not None:
        hidden.pooled = encoder.pooler(hidden.last.flatten(0, 1).index_select(0, batch.firsts))
    logits[left], passed[left] = exits.head.logits(hidden, batch), depth
    return logits, passed


def keep_examples(batch: Batch, x: Tensor, chosen: Tensor) -> tuple[Batch, Tensor, Tensor]:
    """Some examples of a batch packed into rows of their own, their vectors [B', L', D], and which examples these are
    in the order in which they stand there."""
    assert batch.lasts is not None
    firsts = batch.firsts[chosen].cpu().numpy()
    lengths = batch.lasts[chosen].cpu().numpy() - firsts + 1
    rows = pack_examples(lengths)
    order = np.concatenate([np.array(row) for row in rows])
    lengths, row = lengths[order], np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    used = np.bincount(row, lengths).astype(np.int64)
    width = int(used.max())
    starts = np.cumsum(lengths) - lengths + (np.arange(len(rows)) * width - (np.cumsum(used) - used))[row]
    source, target = np.zeros(len(rows) * width, np.int64), ragged_arange(starts, lengths)
    source[target] = ragged_arange(firsts[order], lengths)
    document = np.full(len(source), PADDING)
    document[target] = np.repeat(np.arange(len(order)), lengths)
    gaps = np.flatnonzero(used < width)
    layout = DocumentLayout(
        (*starts.tolist(), *(gaps * width + used[gaps]).tolist()),
        (*lengths.tolist(), *(width - used[gaps]).tolist()),
        len(rows),
        width,
    )
    device = x.device
    taken = torch.from_numpy(source).to(device)
    side = batch.token_info.each(lambda values: values.flatten()[taken].view(len(rows), width))
    side = dataclasses.replace(side, document=torch.from_numpy(document).to(device).view(len(rows), width))
    if side.marked is not None:
        side = dataclasses.replace(side, marked=side.marked & (side.document != PADDING))
    few = Batch(batch.tokens.flatten()[taken].view(len(rows), width), side, batch.kind, layout, _at(starts, device))
    few.lasts, few.real = _at(starts + lengths - 1, device), int(lengths.sum())
    few.most_marked = 0 if side.marked is None else int(side.marked.sum(1).max())
    vectors = x.flatten(0, 1).index_select(0, taken).view(len(rows), width, -1)
    return few, vectors, chosen[_at(order, device)]


def _at(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)
