"""Predict each token from those before it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from clozeworks.core.examples import END, NOTHING, ExamplePlan, RaggedBatch, Vocabulary
from clozeworks.core.token_info import Kind
from clozeworks.objectives.objective import Corruption


@dataclass(slots=True)
class Shift(Corruption):
    """Language modelling in one direction: p(x) = prod_t p(x_t | x_<t) (Bengio et al. 2003; Radford et al. 2018, 3.1).

    Nothing is replaced; what is to be predicted has not been read yet. An example of n tokens is read up to the last
    but one, and each token read is labelled with the one that follows it: n - 1 predictions, specials among them, so
    that the model learns where a text ends. An example of one token stays, and predicts nothing. Where the segments
    know what follows an example, as those of a text in streams do, all n are read and the last is labelled with that.
    """

    kind: ClassVar[Kind] = "causal"
    hides: ClassVar[Literal["replacing", "time", "two streams"]] = "time"

    def read_lengths(self, plan: ExamplePlan, chosen: np.ndarray) -> np.ndarray:
        lengths = plan.lengths_of(chosen)
        return lengths - ((lengths > 1) & (plan.follows is None or plan.follows[chosen] == END))

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        lengths = examples.lengths
        following = np.full(len(examples), NOTHING) if examples.following is None else examples.following
        labels = next_tokens(examples)
        labels[examples.first[1:][lengths > 0] - 1] = following[lengths > 0]
        unread = (lengths > 1) & (following == NOTHING)
        read = np.ones(len(examples.tokens), dtype=bool)
        read[examples.first[1:][unread] - 1] = False
        columns = {name: column[read] for name, column in columns_of(examples).items()}
        first = np.concatenate([[0], np.cumsum(lengths - unread)])
        return replace(examples, **columns, labels=labels[read], first=first)


def next_tokens(examples: RaggedBatch) -> np.ndarray:
    """[tokens]: after each the one that follows it in its example, NOTHING after the last."""
    labels = np.append(examples.tokens[1:], NOTHING)[: len(examples.tokens)].astype(np.int32)
    labels[examples.first[1:][examples.lengths > 0] - 1] = NOTHING
    return labels


def columns_of(examples: RaggedBatch) -> dict[str, np.ndarray]:
    """Those of the tokens, as far as they are there."""
    names = ("tokens", "segment", "special", "word_starts", "units", "sentence_starts", "span")
    return {name: column for name in names if (column := getattr(examples, name)) is not None}
