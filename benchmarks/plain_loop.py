"""The peer in a plain loop: a class of `transformers`, its batches ready before the clock starts.

Its rows are ours, full ones, so that it computes no padding. What it is given beside the tokens is made from the same
batch: labels that are already shifted, so that it computes no last token in vain; or who sees whom and what is asked,
from our order numbers.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import SETTING
from benchmarks.peer import library
from benchmarks.side import Meter
from benchmarks.workload import THEIRS, Workload
from clozeworks.core.batch import Batch
from clozeworks.optim.settings import AdamW

POOL = 8  # batches, trained on over and over: to make more would be on the peer's bill
NOTHING = -100  # a label of the peer that predicts nothing


def following(batch: Batch) -> dict[str, Tensor]:
    """Each token is labelled with the one after it."""
    assert batch.targets is not None
    assert batch.labels is not None
    labels = torch.full_like(batch.tokens, NOTHING)
    labels.view(-1)[batch.targets] = batch.labels
    return {"input_ids": batch.tokens, "labels": labels, "shift_labels": labels}


def permuted(batch: Batch) -> dict[str, Tensor]:
    """What each token may not see [B, L, L], and the places that are asked [B, P, L], as one-hot rows.

    A token is hidden from itself where it is asked; where it is read, the class shows it to itself in any case.
    """
    assert batch.targets is not None
    assert batch.labels is not None
    rows, length = batch.tokens.shape
    order = batch.token_info.appears
    hidden = (order[:, None, :] > order[:, :, None]) | torch.eye(length, dtype=torch.bool)
    row, place = batch.targets // length, batch.targets % length
    counts = torch.bincount(row, minlength=rows)
    number = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    asked = torch.zeros(rows, int(counts.max()), length)
    asked[row, number, place] = 1.0
    labels = torch.full(asked.shape[:2], NOTHING)
    labels[row, number] = batch.labels
    return {"input_ids": batch.tokens, "perm_mask": hidden.float(), "target_mapping": asked, "labels": labels}


# The classes by name, and what they are given; attention with dropout is their own code, no fused kernel.
INPUTS: dict[str, Callable[[Batch], dict[str, Tensor]]] = {
    "OpenAIGPTLMHeadModel": following,
    "XLNetLMHeadModel": permuted,
}


def batches(work: Workload, count: int) -> list[Batch]:
    """The first steps of our own loader, each one batch of full rows."""
    chosen = [batch for micro in itertools.islice(work.steps(), count) for batch in micro]
    assert all(batch.layout is not None and batch.layout.plain for batch in chosen), "the peer would need a mask"
    return chosen


def model_of(folder: Path) -> tuple[Any, Callable[[Batch], dict[str, Tensor]]]:
    """The peer with our weights, and how its inputs are made."""
    transformers = library()
    transformers.logging.set_verbosity_error()
    name = json.loads((folder / SETTING).read_text())["peer"]
    return getattr(transformers, name).from_pretrained(folder / THEIRS), INPUTS[name]


def train(folder: Path, meter: Meter) -> None:
    """Train until the meter has had enough."""
    work = Workload.open(folder)
    settings, (model, inputs) = work.recipe.train, model_of(folder)
    adam = settings.optimizer
    assert isinstance(adam, AdamW), "the peer is given the same optimizer"
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=adam.betas,
        eps=adam.eps,
        weight_decay=adam.decay,
        fused=True,
    )
    ready = [(inputs(batch), batch.real, batch.tokens.numel()) for batch in batches(work, POOL)]
    model.train()
    if not meter.wait():
        return
    for given, real, computed in itertools.cycle(ready):
        optimizer.zero_grad(set_to_none=True)
        model(**given).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not meter.step(real, computed):
            return


def losses(folder: Path) -> dict[str, float]:
    """Both losses of one batch, no dropout."""
    work = Workload.open(folder)
    (batch,), (model, inputs), mine = batches(work, 1), model_of(folder), work.model()
    (name,) = (loss.name for loss in mine.specs)
    with torch.no_grad():
        theirs = float(model.eval()(**inputs(batch)).loss)
        ours = float(mine(batch).losses[name]) / mine.count(batch)[name]
    return {"ours": ours, "theirs": theirs}
