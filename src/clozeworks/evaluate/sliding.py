"""How likely a text is to a model that reads one way: by a window that slides over it, or with a memory.

    window   token t from the `window` tokens before it, which are read anew: O(window) tokens read for each prediction
    memory   segment after segment, each after what is remembered of those before it: every token is read once

A window of W that slides by `stride` predicts the last `stride` tokens of each place, so that each is predicted from
W - stride + 1 to W tokens (fewer where the text begins); with a stride of 1 all have the same context, which is how a
model without memory is at its best and at its slowest (Al-Rfou et al. 2018; Dai et al. 2019, 3.2). A memory of M
rows gives every token at least M of context in each layer.

Everything is given in nats for each token of the text but the first, in order, a piece at a time.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import from_padded
from clozeworks.core.context import Memory
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Vocabulary, assemble
from clozeworks.data.batches.rows import Text
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.model import Model
from clozeworks.objectives.objective import Loss
from clozeworks.objectives.segments import Stream

BATCH_TOKENS = 8192  # read at once: more is not faster
PIECE = 2048  # predictions at once: their logits are as many times the vocabulary


@dataclass(frozen=True, slots=True)
class Figures:
    """The mean over `count` predictions, and what each of them took."""

    loss: float
    count: int
    seconds_per_token: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))

    def bits_per_character(self, characters: int) -> float:
        return self.loss * self.count / math.log(2) / characters


def measure(pieces: Iterable[Tensor], watch: Callable[[int], object] | None = None) -> Figures:
    """Of all pieces together; `watch` is called with how many predictions there are so far."""
    begin, total, count = time.perf_counter(), 0.0, 0
    for piece in pieces:
        total, count = total + float(piece.double().sum()), count + len(piece)
        if watch is not None:
            watch(count)
    return Figures(total / max(count, 1), count, (time.perf_counter() - begin) / max(count, 1))


def text_of(corpus: Text, vocabulary: Vocabulary, most: int | None = None) -> Tensor:
    """[n]: the documents end to end, a [SEP] after each, as a model with memory reads them."""
    total = int(corpus.sentences[-1]) + len(corpus.documents)
    plan = Stream(length=total, streams=1).plan(corpus, np.zeros((), np.uint64))
    tokens = assemble(plan, np.arange(len(plan)), corpus.take, vocabulary).tokens
    return torch.from_numpy(tokens[:most].astype(np.int64))


@torch.no_grad()
def by_window(
    model: Model, text: Tensor, window: int, stride: int = 1, batch_tokens: int = BATCH_TOKENS
) -> Iterator[Tensor]:
    """[n] tokens -> pieces of [n - 1]."""
    check_window(window, stride)
    spec, logits = predictor(model)
    text = readable(model, text)
    window, count = min(window, len(text) - 1), len(text) - 1

    def predict(rows: Tensor, answers: Tensor) -> Iterator[Tensor]:
        return surprises(logits, last_vectors(model, spec, rows, answers.shape[1]), answers.flatten())

    yield from predict(text[None, :window], text[None, 1 : window + 1])  # all that was before is within reach
    whole, left = divmod(count - window, stride)
    if whole:
        rows = text.unfold(0, window, stride)[1:]
        answers = text[window - stride + 1 :].unfold(0, stride, stride)[1:]
        size = max(1, batch_tokens // window)
        for at in range(0, whole, size):
            upto = min(at + size, whole)
            yield from predict(rows[at:upto].contiguous(), answers[at:upto])
    if left:
        yield from predict(text[None, -window - 1 : -1], text[None, -left:])


@torch.no_grad()
def by_memory(model: Model, text: Tensor, segment: int, keys: bool = True) -> Iterator[Tensor]:
    """[n] tokens -> pieces of [n - 1], `segment` at a time.

    What is remembered are `keys` and values, or hidden rows as in training, which are projected again for each segment:
    as no weight changes, it is the same.
    """
    _, logits = predictor(model)
    if not model.encoder.stack.memory:
        raise InputError("model", "a stack without memory", "nothing would be remembered", "slide a window instead")
    text = readable(model, text)
    past: Memory | None = None
    frozen: dict[Any, Any] = {}
    for at in range(0, len(text) - 1, segment):
        answers = text[at + 1 : at + 1 + segment]
        row = text[None, at : at + len(answers)]
        batch = from_padded(row, kind="causal")
        hidden = model.encoder(row, batch.token_info, batch.context(past=past, carry=keys, frozen=frozen))
        assert hidden.memory is not None
        past = Memory(hidden.memory.layers, hidden.memory.token_info.earlier(row.shape[1]))
        yield from surprises(logits, hidden.last[0], answers)


def check_window(window: int, stride: int) -> None:
    if window < 1:
        raise InputError("window", window, "at least one token is needed to predict from", "use 1 or more")
    if not 1 <= stride <= window:
        raise InputError("stride", stride, f"1 to {window} are within the window", "use a smaller stride")


def readable(model: Model, text: Tensor) -> Tensor:
    """The text where the model is."""
    if len(text) < 2:
        given = f"{len(text)} token{'' if len(text) == 1 else 's'}"
        raise InputError("text", given, "two are needed to predict one", "give a longer text")
    return text.to(next(model.parameters()).device)


def predictor(model: Model) -> tuple[Loss, Callable[[Tensor], Tensor]]:
    """The loss by which a model predicts what comes next, and the logits of its head."""
    spec = next((spec for spec in model.specs if spec.name == "next_token"), None)
    if spec is None:
        given = ", ".join(spec.name for spec in model.specs) or "no head"
        raise InputError("model", given, "one that predicts the next token is needed", "pretrain it with NextToken")
    head: Any = model.head(spec.name)
    return spec, head.logits


def last_vectors(model: Model, spec: Loss, rows: Tensor, count: int) -> Tensor:
    """[B, W] tokens -> [B * count, D], those of the last so many of each row; other places go no further than the
    mixing of the last block."""
    size, width = rows.shape
    batch = from_padded(rows, kind="causal")
    batch.targets = (batch.firsts[:, None] + torch.arange(width - count, width, device=rows.device)).flatten()
    stack = model.encoder.stack
    if stack.memory and stack.start == "zeros":  # a window has nothing before it, not even these
        nothing = torch.zeros(size, 0, model.encoder.width, device=rows.device)
        batch.past = Memory((nothing,) * len(stack.blocks), batch.token_info.tail(0))
    return model.read(batch, (spec,)).at(batch)


def surprises(logits: Callable[[Tensor], Tensor], vectors: Tensor, answers: Tensor) -> Iterator[Tensor]:
    """[T, D] and [T] -> pieces of [T]: -log p."""
    for some, asked in zip(vectors.split(PIECE), answers.split(PIECE), strict=True):
        yield F.cross_entropy(logits(some).float(), asked, reduction="none")


def evaluate_sliding(
    encoder: TextEncoder,
    text: Text,
    *,
    context: int,
    stride: int | None = None,
    max_tokens: int | None = None,
    watch: Callable[[str, int], Callable[[int], object]] | None = None,
) -> dict[str, Any]:
    """Metrics of a causal model by a sliding window, and with its memory where it has one.

    `watch` is given what is measured and of how many predictions, and gives what hears how many there are so far.
    """
    if encoder.kind != "causal":
        needed = "a window slides before the token that is predicted"
        raise InputError("--context", f"{encoder.recipe.name} reads both ways", needed, "leave it out")
    if context > encoder.longest:
        raise InputError("--context", context, f"the model has {encoder.longest} positions", "use no more")
    if stride is not None and stride > context:
        raise InputError("--stride", stride, f"1 to {context} are within the window", "use a smaller one")
    tokens = text_of(text, encoder.vocabulary(), max_tokens)
    model, segment = encoder.model, encoder.recipe.objective.segments.length
    ways: dict[str, Callable[[], Iterator[Tensor]]] = {"window": lambda: by_window(model, tokens, context, stride or 1)}
    if model.encoder.stack.memory:
        ways["memory"] = lambda: by_memory(model, tokens, segment)
    characters = len(encoder.tokenizer.decode(tokens[1:].tolist())) if encoder.tokenizer else 0
    metrics: dict[str, Any] = {"tokens": len(tokens)}
    for name, pieces in ways.items():
        measured = measure(pieces(), watch(name, len(tokens) - 1) if watch is not None else None)
        metrics[name] = {
            "loss": measured.loss,
            "perplexity": measured.perplexity,
            **({"bits_per_character": measured.bits_per_character(characters)} if characters else {}),
            "count": measured.count,
            "seconds_per_token": measured.seconds_per_token,
        }
    metrics["window"] |= {"length": context, "stride": stride or 1}
    if "memory" in metrics:
        metrics["memory"] |= {"length": model.encoder.stack.memory, "segment": segment}
        metrics["times_faster"] = metrics["window"]["seconds_per_token"] / metrics["memory"]["seconds_per_token"]
    return metrics
