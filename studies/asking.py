"""What a model gives a token of a text while others are hidden, and what it gives two of them.

Who is hidden is said by turns: 0 for a token that is known from the start, else its place in the order in which the
hidden ones are asked. A token is asked with all of lower turns in sight, so two with the same turn are asked without
each other. Of n rows of L tokens: tokens [n, L], turns [n, L], columns [n].
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.examples import Vocabulary
from clozeworks.model import Model
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.losses.next_token import NextTokenLayer

Ask = Callable[[Tensor, Tensor, Tensor], Tensor]  # tokens, turns and the column asked -> log p of its token [n]


@dataclass(frozen=True, slots=True)
class Masked:
    """A model of masked tokens: what is not in sight yet is [MASK]."""

    model: Model
    vocabulary: Vocabulary

    def __call__(self, tokens: Tensor, turns: Tensor, at: Tensor) -> Tensor:
        hidden = (turns > 0) & (turns >= turns.gather(1, at[:, None]))
        return _found(self.model, from_padded(tokens.masked_fill(hidden, self.vocabulary.mask)), tokens, at)


@dataclass(frozen=True, slots=True)
class Permuted:
    """A model of tokens in an order: turns are order numbers. [CLS] and [SEP] come last, as they may in training, where
    the known tokens never see them."""

    model: Model
    vocabulary: Vocabulary

    def __call__(self, tokens: Tensor, turns: Tensor, at: Tensor) -> Tensor:
        special = torch.isin(tokens, torch.tensor(self.vocabulary.special))
        order = turns.masked_fill(special & (turns == 0), int(turns.max()) + 1)
        batch = from_padded(tokens)
        side = dataclasses.replace(batch.token_info, appears=order, sees=order)
        return _found(self.model, batch.replace(token_info=side, kind="order"), tokens, at)


def at_once(ask: Ask, tokens: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """[n]: log p(a) + log p(b), neither seeing the other."""
    turns = _turns(tokens, (a, 1), (b, 1))
    return ask(tokens, turns, a) + ask(tokens, turns, b)


def in_turn(ask: Ask, tokens: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """[n]: log p(first) + log p(second | first), both hidden from the rest."""
    turns = _turns(tokens, (first, 1), (second, 2))
    return ask(tokens, turns, first) + ask(tokens, turns, second)


def alone(ask: Ask, tokens: Tensor, at: Tensor) -> Tensor:
    """[n]: log p of a token that is the only one hidden."""
    return ask(tokens, _turns(tokens, (at, 1)), at)


def _turns(tokens: Tensor, *asked: tuple[Tensor, int]) -> Tensor:
    turns = torch.zeros_like(tokens)
    for at, turn in asked:
        turns.scatter_(1, at[:, None], turn)
    return turns


@torch.no_grad()
def _found(model: Model, batch: Batch, tokens: Tensor, at: Tensor) -> Tensor:
    """[n]: log p of the tokens at the columns `at`."""
    rows, length = tokens.shape
    batch = batch.replace(targets=torch.arange(rows) * length + at)
    (head,) = model.heads.values()
    assert isinstance(head, MaskedLMLayer | NextTokenLayer)
    scores = head.logits(model.read(batch, model.specs).at(batch)).log_softmax(-1)
    return scores.gather(1, tokens.gather(1, at[:, None]))[:, 0]
