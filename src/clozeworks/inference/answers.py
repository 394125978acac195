"""What a model answers, row by row."""

from functools import partial
from typing import Any

import numpy as np
import torch

from clozeworks.core.examples import ragged_arange
from clozeworks.core.token_info import Kind
from clozeworks.data.batches.labelled import Labelled, by_length
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.char_vocab import collect_texts, extend_vocabulary
from clozeworks.inference.decoding import decode_all, teacher_forced_loss
from clozeworks.inference.early_exit import answer_early, find_exits
from clozeworks.model import Model
from clozeworks.tasks.task import Task, TaskLayer

TOKENS, CACHED = 8192, 2048  # of a batch; of one on a processor, whose caches then hold what a block works on


@torch.no_grad()
def predict_outputs(
    model: Model, task: Task, labelled: Labelled, kind: Kind, pad: int
) -> tuple[list[np.ndarray], float | None]:
    """What the head says of each example, in their order; and its loss, a mean, where the examples have labels."""
    if task.generation is not None:
        loss = teacher_forced_loss(model, task, labelled, kind, pad, TOKENS)
        return decode_all(model, task.generation, labelled), loss
    head = model.head(task.name)
    assert isinstance(head, TaskLayer)
    device, exits = next(model.parameters()).device, find_exits(model)
    results: list[np.ndarray | None] = [None] * len(labelled.examples)
    total, count = 0.0, 0
    for batch in by_length(labelled, kind, pad, CACHED if device.type == "cpu" else TOKENS):
        units = np.array(batch.index)
        batch = batch.to(device)
        if exits is None:
            hidden = model.read(batch, (task,))
            outputs, compare = head.outputs(hidden, batch), partial(head, hidden)
        else:
            logits, _ = answer_early(model, task, exits, batch)
            outputs, compare = list(logits.float().cpu().numpy()), partial(exits.head.compare, logits)
        if task.computed(batch) and not task.needs_whole_step:
            total, count = total + float(compare(batch)[0]), count + task.count(batch)
        numbers = ragged_arange(labelled.first[units], labelled.first[units + 1] - labelled.first[units])
        for number, value in zip(numbers.tolist(), outputs, strict=True):
            results[number] = value
    values = [value for value in results if value is not None]
    if task.needs_whole_step:
        return values, task.mean_loss(values, labelled)
    return values, total / count if count else None


def predict_records(
    model: Model, task: Task, table: Table, tokenizer: Tokenizer, kind: Kind, truth: bool = False
) -> tuple[list[dict[str, Any]], float | None]:
    """An answer for each row, and the mean loss where there is truth to compare with."""
    model, tokenizer = extend_vocabulary(model, tokenizer, collect_texts(table.rows, task.columns))
    labelled = task.examples(table, tokenizer, truth)
    results, loss = predict_outputs(model, task, labelled, kind, tokenizer.filler)
    return task.answers(results, labelled, table), loss
