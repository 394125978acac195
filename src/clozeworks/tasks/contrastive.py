"""Losses of sentence embeddings: cosine, CoSENT (order of the pairs of a step), in-batch negatives."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def squared(cosine: Tensor, target: Tensor) -> Tensor:
    """sum_i (cosine_i - target_i)^2 of pairs [N] (Reimers & Gurevych 2019, section 3)."""
    return (cosine - target).square().sum()


def ordered(cosine: Tensor, target: Tensor, scale: float) -> Tensor:
    """log(1 + sum exp(scale (cosine_j - cosine_i))) over all i, j with target_i > target_j (CoSENT, Su 2022).

    What counts is which of two pairs is the more alike, and not how much alike they are.
    """
    worse = scale * (cosine[None, :] - cosine[:, None])
    worse = worse.masked_fill(target[:, None] <= target[None, :], -torch.inf).flatten()
    return torch.cat([worse.new_zeros(1), worse]).logsumexp(0)


def picked(vectors: Tensor, text: Tensor, right: Tensor, scale: float, both: bool) -> tuple[Tensor, Tensor]:
    """sum -log softmax_j(scale cosine(a_i, b_j)) at j = i over the pairs that are `right` [N] (Henderson et al. 2017,
    section 4.4), and how many of them have their own b first.

    vectors [N, k, D]: a, b and maybe a third text, which is one more wrong b for all, of length 1; text [N, k] are
    their numbers, equal where the texts are. With `both` it is the mean of this and of finding a_i for b_i.
    """
    others, names = vectors[:, 1:].transpose(0, 1).flatten(0, 1), text[:, 1:].t().flatten()
    (a, b), number = text.t()[:2], torch.arange(len(right), device=right.device)
    scores = (scale * vectors[:, 0] @ others.t()).masked_fill(fits(a, b, right, names), -torch.inf)
    loss = F.cross_entropy(scores[right], number[right], reduction="sum")
    if both:
        back = (scale * vectors[:, 1] @ vectors[:, 0].t()).masked_fill(fits(b, a, right, a), -torch.inf)
        loss = (loss + F.cross_entropy(back[right], number[right], reduction="sum")) / 2
    return loss, (scores.argmax(1) == number)[right].sum()


def fits(asked: Tensor, own: Tensor, right: Tensor, names: Tensor) -> Tensor:
    """[N, M]: which of the texts `names` [M], the first N of which are `own`, are no wrong answers for `asked` [N].

    These are what a right pair has for the same text, and the text itself; its own answer is not among them.
    """
    pairs = (asked[:, None] == asked[None, :]) & right
    fitting = (pairs.float() @ (own[:, None] == names[None, :]).float()) > 0
    fitting |= asked[:, None] == names[None, :]
    number = torch.arange(len(asked), device=asked.device)
    fitting[number, number] = False
    return fitting


def ranks(vectors: np.ndarray, text: np.ndarray, rows: int = 1024) -> np.ndarray:
    """int64 [N]: the rank of b_i from 1, by the cosine with a_i, among the different texts that are not a; behind those
    that are as near, and without the others that fit. `rows` so many are compared at a time."""
    others, names = vectors[:, 1:].swapaxes(0, 1).reshape(-1, vectors.shape[2]), text[:, 1:].T.reshape(-1)
    names, where = np.unique(names, return_index=True)
    others, column = others[where], {int(name): at for at, name in enumerate(names)}
    right = defaultdict(set)
    for a, b in text[:, :2].tolist():
        right[a] |= {column[b]} | ({column[a]} if a in column else set())
    ranking = np.zeros(len(vectors), np.int64)
    for begin in range(0, len(vectors), rows):
        scores = vectors[begin : begin + rows, 0] @ others.T
        for at, (line, (a, b)) in enumerate(zip(scores, text[begin : begin + rows, :2].tolist(), strict=True), begin):
            own = line[column[b]]
            besides = [other for other in right[a] if other != column[b]]
            ranking[at] = (line >= own).sum() - (line[besides] >= own).sum()
    return ranking
