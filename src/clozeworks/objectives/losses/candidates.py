"""A few words to compare the right one with, in place of all: frequent ones more often (Jean et al. 2015).

Ids are taken to be in order of frequency, as those of a words tokenizer are, and word k is drawn with the chance

    p(k) = log((k + 2) / (k + 1)) / log(V + 1)

until there are n different ones; after t tries a word is among them with the chance q(k) = 1 - (1 - p(k))^t. To take
log q(k) off the logit of k makes the softmax over candidates a fair guess of that over all words.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.dropout import DropoutKey
from clozeworks.objectives.losses.exact import exact


@dataclass(frozen=True, slots=True)
class Candidates:
    """Words that were drawn to compare with, without repetition."""

    ids: Tensor  # [n] different words
    tries: int  # that it took

    @staticmethod
    def draw(key: DropoutKey, count: int, vocab: int) -> "Candidates":
        """The same for the same key, wherever it is; on the meta device, which has shapes only, any."""
        if key.seeds.is_meta:
            return Candidates(torch.arange(count, device="meta"), count)
        generator = np.random.default_rng([int(value) % 2**64 for value in (*key.seeds[:1].tolist(), key.site)])
        drawn = np.zeros(0, np.int64)
        while True:
            uniform = generator.random(2 * count)
            drawn = np.append(drawn, (np.exp(uniform * np.log(vocab + 1)) - 1).astype(np.int64).clip(0, vocab - 1))
            words, first = np.unique(drawn, return_index=True)
            if len(words) >= count:
                chosen = np.sort(first)[:count]
                ids = torch.from_numpy(np.sort(drawn[chosen])).to(key.seeds.device)
                return Candidates(ids, int(chosen[-1]) + 1)

    def expected(self, ids: Tensor, vocab: int) -> Tensor:
        """log q of these words."""
        word = ids.double()
        chance = torch.log1p(1 / (word + 1)) / np.log(vocab + 1)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-chance)))


def sampled(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor, candidates: Candidates) -> Tensor:
    """The summed loss: x [T, D], table [V, D], bias [V], labels [T]. A candidate that is the label does not count."""
    vocab = len(table)
    own = (exact(x) * exact(table[labels])).sum(-1) + bias[labels] - candidates.expected(labels, vocab).to(bias.dtype)
    off = bias[candidates.ids] - candidates.expected(candidates.ids, vocab).to(bias.dtype)
    others = exact(x @ table[candidates.ids].t()) + off
    others = others.masked_fill(labels[:, None] == candidates.ids, -torch.inf)
    return (torch.logaddexp(others.logsumexp(-1), own) - own).sum()
