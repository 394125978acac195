"""Held-out metrics of a model on prepared text, with those of word frequencies."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.core import spec
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate import heldout
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.metrics.frequencies import unigram_baseline
from clozeworks.nn.mixers.lsh import LSHLayer

BLOCK = 1 << 15  # pairs that are counted together


def adapt(
    encoder: TextEncoder, length: int | None = None, memory: int | None = None, rounds: int | None = None
) -> TextEncoder:
    """The model, to read examples of another length, and set to remember or to hash more or less than in training."""
    objective, stack = encoder.recipe.objective, encoder.model.encoder.stack
    if memory is not None:
        if not encoder.recipe.encoder.stack.memory:
            given, needed = f"{memory} for {encoder.recipe.name}", "it was trained without a memory"
            raise InputError("--memory", given, needed, "leave it out")
        stack.memory = memory
    if rounds is not None:
        hashing = [layer for layer in encoder.model.modules() if isinstance(layer, LSHLayer)]
        if not hashing:
            given = f"{rounds} for {encoder.recipe.name}"
            raise InputError("--rounds", given, "none of its layers is LSH attention", "leave it out")
        for layer in hashing:
            layer.rounds = rounds
    if length is not None:
        if length > encoder.longest:
            raise InputError("--max-length", length, f"the model has {encoder.longest} positions", "use no more")
        segments = dataclasses.replace(objective.segments, length=length)
        spec.check(segments, "--max-length")
        objective = dataclasses.replace(objective, segments=segments)
    return dataclasses.replace(encoder, recipe=dataclasses.replace(encoder.recipe, objective=objective))


def evaluate_text(encoder: TextEncoder, directory: Path, seed: int = 0) -> dict[str, Any]:
    """Held-out metrics of the model, and those of always guessing by how frequent a token is in training."""
    text, training = Corpus.open(directory, "heldout"), Corpus.open(directory, "train", verify="size")
    check_tokenizer(encoder, text)
    if all("teacher" in loss.needs.reads for loss in encoder.model.specs):  # which is not here
        needed = "a head that predicts is needed"
        raise InputError(encoder.recipe.name, "a bare encoder", needed, "pretrain it with --from")
    labels: list[np.ndarray] = []
    pairs: list[np.ndarray] = []

    def watched(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if batch.labels is not None:
                labels.append(batch.labels.numpy())
            if "pair_label" in batch.example:
                pairs.append(batch.example["pair_label"].numpy())
            yield batch

    batches = heldout.batches(text, encoder.recipe.objective, encoder.vocabulary(), seed)
    metrics = heldout.measure(encoder.model, watched(batches))
    if labels:
        sides = encoder.recipe.decoder is not None
        counts = target_counts(training, encoder.vocabulary().size) if sides else training.unigram()
        metrics |= unigram_baseline(counts, np.concatenate(labels))
    loss = metrics.get("next_token", metrics.get("masked_lm"))
    if loss is not None and encoder.tokenizer is not None:  # per character: comparable between tokenizers
        characters = sum(len(encoder.tokenizer.decode(each.tolist())) for each in labels)
        metrics["bits_per_character"] = loss * metrics["count"] / math.log(2) / max(characters, 1)
    streams = getattr(
        heldout.fewer_streams(encoder.recipe.objective.segments, int(text.sentences[-1])), "streams", None
    )
    if streams is not None:
        length, memory = encoder.recipe.objective.segments.length, encoder.model.encoder.stack.memory
        metrics |= {"streams": streams, "length": length, "memory": memory}
    if "pair_accuracy" in metrics:
        share = float(np.concatenate(pairs).mean())
        metrics["commoner_pair_accuracy"] = max(share, 1 - share)
    return metrics


def check_tokenizer(encoder: TextEncoder, text: Corpus) -> None:
    if encoder.tokenizer is not None and encoder.tokenizer.fingerprint != text.tokenizer_fingerprint:
        given = "another tokenizer than the model has"
        todo = "prepare the text again with --tokenizer set to the model's directory"
        raise InputError(text.directory, given, "token ids must keep their meaning", todo)


def target_counts(text: Corpus, size: int) -> np.ndarray:
    """How often the targets of prepared pairs have each token."""
    counts = np.zeros(size, dtype=np.int64)
    for at in range(1, len(text.sentences) - 1, 2 * BLOCK):
        chosen = np.arange(at, min(at + 2 * BLOCK, len(text.sentences) - 1), 2)
        counts += np.bincount(text.take(text.sentences[chosen], text.sentences[chosen + 1]).tokens, minlength=size)
    return counts
