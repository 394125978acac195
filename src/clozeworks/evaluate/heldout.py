"""Figures on text the model never saw, under masks that never change."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from clozeworks.core.batch import Batch
from clozeworks.core.examples import Vocabulary
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.data.batches.rows import Source, Text, batch_rows, collate, read_ahead
from clozeworks.model import Model
from clozeworks.objectives.objective import Objective, Segments

STREAM = 32  # rows that a stream of held-out text should have at least


def evaluate(
    model: Model,
    corpus: Text,
    objective: Objective,
    vocabulary: Vocabulary,
    *,
    seed: int = 0,
    batch_tokens: int = 8192,
    limit_tokens: int | None = None,
) -> dict[str, Any]:
    """Loss, each loss and metric, perplexity and the count of predicted tokens over the examples of a corpus.

    The examples are epoch 0 of `seed`: the same for every model, step and batch size.
    """
    return measure(model, batches(corpus, objective, vocabulary, seed, batch_tokens, limit_tokens))


def batches(
    corpus: Text,
    objective: Objective,
    vocabulary: Vocabulary,
    seed: int = 0,
    batch_tokens: int = 8192,
    limit_tokens: int | None = None,
) -> Iterator[Batch]:
    """The examples to evaluate on; `limit_tokens` leaves whole rows out, whatever the size of a batch."""
    segments = fewer_streams(objective.segments, int(corpus.sentences[-1]))
    epoch = Source(corpus, segments, objective.corruption, vocabulary, seed).epoch(0)
    order, size = epoch.order(), batch_rows(segments, batch_tokens)
    rows = (row for pool in range(epoch.pools()) for row in read_ahead(epoch, epoch.rows(pool, order)))
    if limit_tokens is not None:
        limit, streams = limit_tokens // segments.length, getattr(segments, "streams", 1)
        rows = itertools.islice(rows, max(1, limit // streams) * streams)  # of text in streams, whole time steps
    while chunk := list(itertools.islice(rows, size)):
        yield collate(chunk)


def fewer_streams(segments: Segments, tokens: int) -> Segments:
    """Streams, halved until each has `STREAM` rows: where a stream begins nothing is remembered, and held-out text that
    is cut into many short ones would measure little else."""
    streams, pairs = getattr(segments, "streams", None), getattr(segments, "both", False)
    while streams is not None and streams > 1 and tokens < streams * STREAM * segments.length:
        streams //= 2
        if pairs and streams % 2:  # half of them read backward
            break
        segments = dataclasses.replace(segments, streams=streams)
    return segments


@torch.no_grad()
def measure(model: Model, batches: Iterable[Batch], teach: Callable[[Batch], Batch] | None = None) -> dict[str, Any]:
    """Means over all predictions: sums first, one division at the end. Without a teacher, of what needs none.

    A model with memory has nothing in it before the first batch.
    """
    device, memory = next(model.parameters()).device, SegmentMemory()
    sums: dict[str, float] = {}
    owner: dict[str, str] = {}
    counts = {spec.name: 0 for spec in model.specs}
    for batch in batches:
        batch = batch.to(device)
        output = model(memory.give(batch if teach is None else teach(batch)))
        memory.take(batch, output.hidden.memory)
        for name, count in model.count(batch).items():
            counts[name] += count
        for name, (loss, value) in ({n: (n, v) for n, v in output.losses.items()} | output.metrics).items():
            owner[name], sums[name] = loss, sums.get(name, 0.0) + float(value)
    divisors = {spec.name: spec.divisor(counts[spec.name]) for spec in model.specs}
    means = {name: value / max(divisors.get(name, counts[owner[name]]), 1) for name, value in sums.items()}
    loss = sum(spec.weight * means.get(spec.name, 0.0) for spec in model.specs if not spec.regularizer)
    metrics: dict[str, Any] = {"loss": loss, **means}
    tokens = [spec.name for spec in model.specs if "labels" in spec.needs.reads]
    for name in tokens[:1]:  # the first loss over tokens stands for all
        metrics |= {"perplexity": math.exp(min(means[name], 700.0)), "count": counts[name]}
    return metrics
