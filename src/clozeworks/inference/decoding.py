"""What a model writes from each source."""

import numpy as np
import torch

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.core.token_info import Kind
from clozeworks.data.batches.labelled import Labelled, by_length
from clozeworks.data.batches.sides import SOURCE
from clozeworks.inference.beam_search import BeamSearch, beam_search_batch, room
from clozeworks.inference.generation import IncrementalReader
from clozeworks.inference.prefix_lm import PrefixLMDecoder
from clozeworks.model import Model
from clozeworks.tasks.generation import Generation
from clozeworks.tasks.task import Task

TOKENS = 4096  # of sources and their beams that are searched together
OFFSET = 5  # of the length penalty, as published


@torch.no_grad()
def teacher_forced_loss(
    model: Model, task: Task, labelled: Labelled, kind: Kind, pad: int, tokens: int
) -> float | None:
    """The mean loss of the targets' tokens, each given those before it; None where there are no targets."""
    if not (labelled.examples.labels != NOTHING).any():
        return None
    device, head = next(model.parameters()).device, model.head(task.name)
    assert head is not None
    total, count = 0.0, 0
    for batch in by_length(labelled, kind, pad, tokens):
        batch = batch.to(device)
        total += float(head(model.read(batch, (task,)), batch)[0])
        count += task.count(batch)
    return total / count


def decode_all(model: Model, generation: Generation, labelled: Labelled) -> list[np.ndarray]:
    """Of each example the log p of what was written, then its tokens. A blank source gives a blank text.

    Sources of like length are searched together, the longest first, and each comes out as it would alone.
    """
    examples, tokenizer = labelled.examples, labelled.tokenizer
    assert tokenizer is not None
    start, end, lengths = generation.start(tokenizer), generation.end(tokenizer), examples.fields[SOURCE]
    never = tuple(sorted(tokenizer.special_ids - {end}))
    search, most = generation.search, generation.target_length
    how = BeamSearch(search.beams, search.penalty, OFFSET, never)
    if generation.architecture == "decoder":
        most = min(most, room(model))
    results = [np.zeros(1) for _ in range(len(examples))]
    inside = ~examples.special & (examples.position < np.repeat(lengths, examples.lengths))
    full = np.bincount(examples.example, inside, len(examples)) > 0
    order = [at for at in np.argsort(lengths, kind="stable").tolist() if full[at]]
    while order:
        count = max(1, TOKENS // (int(lengths[order[-1]]) * how.count))
        chosen, order = order[-count:][::-1], order[:-count]
        limits = [min(int(lengths[at]) + search.more, most) for at in chosen]
        reader = _reader(model, generation, _sources(examples, chosen, generation).to(next(model.parameters()).device))
        for at, best in zip(
            chosen, beam_search_batch(reader, [[start]] * len(chosen), limits, how, end=end), strict=True
        ):
            results[at] = np.array([best[0].score, *best[0].tokens])
    return results


def _reader(model: Model, generation: Generation, source: Batch) -> IncrementalReader:
    if generation.architecture == "decoder":
        return IncrementalReader(model, source=source)
    return PrefixLMDecoder(model, source, generation.architecture, generation.template.segments)


def _sources(examples: RaggedBatch, chosen: list[int], generation: Generation) -> Batch:
    """The sources of some examples, a row each."""
    lengths = examples.fields[SOURCE][chosen]
    at = examples.first[chosen][:, None] + np.arange(lengths.max())
    real = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.where(real, examples.tokens[np.where(real, at, 0)], 0).astype(np.int64)
    marked = None
    if examples.marked is not None:
        marked = torch.from_numpy(real & examples.marked[np.where(real, at, 0)])
    kind = "causal" if generation.architecture == "causal" else "full"
    return from_padded(torch.from_numpy(tokens), torch.from_numpy(real), kind=kind, marked=marked)
