"""Texts in, translations out: what a model with a decoder writes from each text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.context import AttentionCapture
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.beam_search import BeamSearch, pad_sources, translations
from clozeworks.model import Model

OFFSET = 5  # of the length penalty, as published


@dataclass(frozen=True, slots=True)
class Translation:
    """What was written from a text; `cut`: tokens at its end that the model has no room to read."""

    source: str
    text: str
    tokens: list[int]
    score: float  # log p of the tokens, their end among them
    cut: int = 0


def translate(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    beams: int = 4,
    penalty: float = 0.6,
    start: int | None = None,
    end: int | None = None,
    longest: int = 1 << 20,
    batch_tokens: int = 4096,
    progress: Callable[[int, int], None] | None = None,
) -> list[Translation]:
    """The best that `beams` beams find for each text, in the order given; texts of like length are searched together,
    which changes none of them. A blank text gives a blank one. `start` and `end` are what a text is written after and
    ends with (the tokenizer's [CLS] and [SEP]). `progress` is called with how many of how many are done.
    """
    if model.decoder is None:
        needed = "a decoder writes translations, and this model has none"
        raise InputError("translate", "an encoder alone", needed, "pretrain transformer_mini on pairs")
    if model.head("seq2seq") is not None:
        needed = "its sources are laid out as its task says"
        raise InputError("translate", "a model that was fine-tuned to write", needed, "use clozeworks predict")
    start, end = (tokenizer.need(role) if given is None else given for role, given in (("cls", start), ("sep", end)))
    how = BeamSearch(beams, penalty, OFFSET, never=tuple(sorted(tokenizer.special_ids - {end})))
    read = [one.ids.tolist() for one in tokenizer.encode(texts)]
    sources = [[*ids[: longest - 1], end] if ids else [] for ids in read]
    results = [
        Translation(text, "", [], 0.0, max(len(ids) - longest + 1, 0)) for text, ids in zip(texts, read, strict=True)
    ]
    searched = translations(model, sources, start=start, end=end, how=how, batch_tokens=batch_tokens)
    for done, (at, best) in enumerate(searched, 1):
        if best:
            tokens = best[0].tokens
            results[at] = Translation(texts[at], tokenizer.write(tokens), tokens, best[0].score, results[at].cut)
        if progress is not None:
            progress(done, len(texts))
    return results


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where a decoder looked: for each token that was written, its end among them, a share for each of the source."""

    source: list[int]
    target: list[int]
    weights: list[list[float]]


@torch.no_grad()
def align(
    model: Model,
    tokenizer: Tokenizer,
    translation: Translation,
    *,
    start: int | None = None,
    end: int | None = None,
    longest: int = 1 << 20,
) -> Alignment:
    """The weights with which the last block read the source while a translation was written; of several heads, the
    mean."""
    start, end = (tokenizer.need(role) if given is None else given for role, given in (("cls", start), ("sep", end)))
    ids = tokenizer.encode([translation.source])[0].ids.tolist()[: longest - 1]
    if model.decoder is None or not ids or not translation.tokens:
        given = "an encoder alone" if model.decoder is None else "an empty text"
        raise InputError("alignment", given, "words that a decoder wrote from others are needed", "give it a text")
    source, read = [*ids, end], [start, *translation.tokens[:-1]]
    device = next(model.parameters()).device
    batch, last = from_padded(torch.tensor([read]), kind="causal").to(device), len(model.decoder.stack.blocks) - 1
    capture = AttentionCapture(blocks=frozenset({last}))
    context = batch.context(source=model.source(pad_sources([source]).to(device)), capture=capture)
    model.decoder(batch.tokens, batch.token_info, context)
    weights = capture.captured.get(f"weights.{last}")
    if weights is None:
        needed = "it reads the source as one vector, and looks at none of its words"
        raise InputError("alignment", "a model without attention to its source", needed, "take rnn_attention_mini")
    return Alignment(source, translation.tokens, weights[0].mean(0).tolist())
