"""A table of words that is counted, not drawn.

What a small model learns of words first is their company, which counting finds in seconds: tokens that stand before and
after the same others begin with vectors that are near each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.bounds import Count, Natural, Share
from clozeworks.core.spec import to_dict
from clozeworks.data.shards.corpus import Corpus
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.words import WordsLayer
from clozeworks.objectives.objective import Objective
from clozeworks.starts.initializer import Fresh, Initializer
from clozeworks.starts.word_table import keep_table, need_table, put_rows, standardise

PIECE = 1 << 22  # tokens counted at a time
PAIRS = 1 << 25  # different pairs held: what was seen once is dropped when there are more
PASSAGES = 1 << 18  # read at most: every second, third ... of a larger text
SMOOTHING = 0.75  # of the contexts' frequencies (Levy et al. 2015): rare ones are not all informative
SPARE, ROUNDS = 16, 3  # of the randomized decomposition (Halko et al. 2011)


@dataclass(slots=True)
class CountedTable(Initializer):
    """The table of words begins as the singular vectors of counted neighbours (Levy & Goldberg 2014; Levy et al. 2015)
    and passages (Deerwester et al. 1990).

    X_w,(s,c) = sum over the places of w of 1 / distance to each c at most `window` tokens away on side s, left or right
    Y_w,c = how often c stands 2, 4, 8 ... times `window` tokens away on either side, up to `far`
    Z_w,p = how often w stands in passage p, `passage` tokens of a document
    PPMI = max(0, log X_wc sum(X) / (X_w X_c^.75)), of Y and Z too
    [PPMI_X, PPMI_Y, a PPMI_Z] ~ U S V^T,  table = U S^`power`

    with a such that passages have the sum of squares of the others. The sides are columns apart, so that order is kept:
    near tokens say what kind of word w is, those that are `far` and its passages what it is about; 0 leaves either out.
    Columns of the table have mean 0, every row the length that drawn ones have, whose place they take; tokens that the
    text lacks, such as [MASK], keep what was drawn. Of narrow tables (E < D) the first E singular vectors. Pairs are
    counted in one pass over the shards, within a document, in bounded memory, passages in another; the table depends on
    text and fields alone and is kept beside the data.

    [V, E]. O(tokens (window + log far)) to count, O(pairs E) a round of the randomized decomposition, four rounds.
    """

    option: ClassVar[str] = "counted"
    reads_text: ClassVar[bool] = True
    window: Count = 2
    far: Natural = 16
    passage: Natural = 0
    power: Share = 0.5

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        need_table(where, "CountedTable", model)

    def begin(self, fresh: Fresh) -> list[str]:
        layer = fresh.model.encoder.embed.words
        assert isinstance(layer, WordsLayer)
        if not fresh.corpora:
            return ["no text to count in: the table of words begins at random"]
        table = self.table(fresh.corpora, layer.width)
        count = put_rows(layer, table, fresh.deviation)
        return [f"{count:,} of {layer.vocab:,} tokens begin as what was counted of their neighbours"]

    def table(self, corpora: Sequence[tuple[Corpus, float]], width: int) -> np.ndarray:
        """[V, width], rows of length sqrt(width), or 0 where a token does not occur; read where it was kept before."""
        make = lambda: standardise(self.vectors(corpora, width))  # noqa: E731
        return keep_table(self.option, [to_dict(self)], corpora, (corpora[0][0].vocab, width), make)

    def vectors(self, corpora: Sequence[tuple[Corpus, float]], width: int) -> np.ndarray:
        """U S^power, as many columns as asked for; counted anew."""
        vocab = corpora[0][0].vocab
        keys, counts = count_pairs(corpora, range(1, self.window + 1))
        left, right = keys // vocab, keys % vocab
        # Of each token those before it, then those after it, then those further away, then its passages.
        rows, columns = np.concatenate([right, left]), np.concatenate([left, right + vocab])
        values = _ppmi(rows, columns, np.concatenate([counts, counts]), 2 * vocab)
        contexts, distances = 2 * vocab, [self.window << n for n in range(1, 32) if self.window << n <= self.far]
        if distances:
            keys, counts = count_pairs(corpora, distances)
            here, there = np.concatenate([keys // vocab, keys % vocab]), np.concatenate([keys % vocab, keys // vocab])
            rows, columns = np.concatenate([rows, here]), np.concatenate([columns, there + contexts])
            values = np.concatenate([values, _ppmi(here, there, np.concatenate([counts, counts]), vocab)])
            contexts += vocab
        if self.passage:
            words, passages, counts = count_passages(corpora, self.passage)
            added = _ppmi(words, passages, counts, many := int(passages.max(initial=-1)) + 1)
            values = np.concatenate([values, added * _balance(values, added)])
            rows, columns = np.concatenate([rows, words]), np.concatenate([columns, passages + contexts])
            contexts += many
        kept = values > 0
        u, s = _decompose(_sparse(rows[kept], columns[kept], values[kept], (vocab, contexts)), min(width, vocab))
        occur = np.unique(rows[kept])
        vectors = np.zeros((vocab, width), np.float32)
        vectors[occur, : len(s)] = (u * s**self.power).numpy()[occur]
        return vectors


def count_pairs(corpora: Sequence[tuple[Corpus, float]], distances: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """left V + right of each pair of tokens so far apart in a document, rising, and its sum of 1 / distance.

    Texts count as they are mixed. Where more different pairs than `PAIRS` occur, those seen once are dropped meanwhile.
    """
    total = sum(weight for _, weight in corpora)
    size = sum(len(text) for text, _ in corpora)
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.float64)
    for text, weight in corpora:
        share = weight / total * size / max(len(text), 1)
        for piece in _pieces(text, distances):
            keys, counts = _add(keys, counts, *piece, share)
    return keys, counts


def _pieces(text: Corpus, distances: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of a piece of the text with the weight of each: pairs that begin in it."""
    ends = text.sentences[text.documents[1:]]
    for begin in range(0, len(text), PIECE):
        end = min(begin + PIECE, len(text))
        until = min(end + max(distances), len(text))
        tokens = text.take(np.array([begin]), np.array([until])).tokens.astype(np.int64)
        document = np.searchsorted(ends, np.arange(begin, until), side="right")
        for distance in distances:
            stop = min(end - begin, len(tokens) - distance)
            if stop > 0:
                same = document[:stop] == document[distance : distance + stop]
                pairs = (tokens[:stop] * text.vocab + tokens[distance : distance + stop])[same]
                keys, counts = np.unique(pairs, return_counts=True)
                yield keys, counts / distance


def count_passages(corpora: Sequence[tuple[Corpus, float]], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each token and passage in which it stands, and how often: passages of so many tokens, the last of a document of
    fewer. Texts count as they are mixed; of more than `PASSAGES` every second, third ... is read."""
    total, size = sum(weight for _, weight in corpora), sum(len(text) for text, _ in corpora)
    borders = [_passages(text, length) for text, _ in corpora]
    every = max(1, -(-sum(len(begins) for begins, _ in borders) // PASSAGES))
    number, entries = 0, list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for (text, weight), (begins, ends) in zip(corpora, borders, strict=True):
        share, group = weight / total * size / max(len(text), 1), max(1, PIECE // length)
        for at in range(0, len(begins), group * every):
            first, last = (each[at : at + group * every : every] for each in (begins, ends))
            passage = np.repeat(np.arange(number, number + len(first)), last - first)
            keys, counts = np.unique(passage * text.vocab + text.take(first, last).tokens, return_counts=True)
            entries.append((keys % text.vocab, keys // text.vocab, counts * share))
            number += len(first)
    if not entries:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    words, passages, counts = (np.concatenate(each) for each in zip(*entries, strict=True))
    return words, passages, counts


def _passages(text: Corpus, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each begins, and where it ends."""
    borders = text.sentences[text.documents].astype(np.int64)
    many = -(-np.diff(borders) // length)
    inside = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    begins = np.repeat(borders[:-1], many) + length * inside
    return begins, np.minimum(begins + length, np.repeat(borders[1:], many))


def _balance(values: np.ndarray, added: np.ndarray) -> float:
    """What gives the added entries the sum of squares that the others have."""
    both = [float(np.square(each, dtype=np.float64).sum()) for each in (values, added)]
    return (both[0] / both[1]) ** 0.5 if all(both) else 1.0


def _add(
    keys: np.ndarray, counts: np.ndarray, more: np.ndarray, added: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two rising lists of pairs as one."""
    both = np.concatenate([keys, more])
    order = np.argsort(both, kind="stable")
    both, sums = both[order], np.concatenate([counts, added * share])[order]
    firsts = np.flatnonzero(np.concatenate([[True], both[1:] != both[:-1]])) if len(both) else np.zeros(0, np.int64)
    keys, counts = both[firsts], np.add.reduceat(sums, firsts) if len(firsts) else sums
    if len(keys) > PAIRS:
        kept = counts > share
        keys, counts = keys[kept], counts[kept]
    return keys, counts


def _ppmi(rows: np.ndarray, columns: np.ndarray, counts: np.ndarray, contexts: int) -> np.ndarray:
    """Positive pointwise mutual information of each pair."""
    of_row = np.bincount(rows, counts)
    of_column = np.bincount(columns, counts, contexts) ** SMOOTHING
    chance = of_row[rows] * (of_column / of_column.sum())[columns]
    return np.maximum(np.log(counts / chance), 0.0).astype(np.float32)


def _sparse(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix of entries that are each given once."""
    places, entries = torch.from_numpy(np.stack([rows, columns])), torch.from_numpy(values)
    return torch.sparse_coo_tensor(places, entries, shape, check_invariants=False).coalesce()


def _decompose(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The first left singular vectors and singular values, by a randomized range finder (Halko et al. 2011, 4.4).

    The sign of each vector is such that its largest entry is positive: nothing else of it is left to chance.
    """
    generator = torch.Generator().manual_seed(0)
    turned = matrix.t().coalesce()
    basis = matrix @ torch.randn(matrix.shape[1], min(rank + SPARE, *matrix.shape), generator=generator)
    for _ in range(ROUNDS):
        basis = matrix @ _orthonormal(turned @ _orthonormal(basis))
    basis = _orthonormal(basis)
    u, s, _ = torch.linalg.svd((turned @ basis).t(), full_matrices=False)
    rank = min(rank, int((s > s[0] * 1e-5).sum()))  # what is beyond is rounding
    u, s = (basis @ u)[:, :rank], s[:rank]
    return u * u.gather(0, u.abs().argmax(0, keepdim=True)).sign(), s


def _orthonormal(columns: Tensor) -> Tensor:
    """A basis of what the columns span, row by row in memory: sparse products take 20 times as long otherwise."""
    return torch.linalg.qr(columns)[0].contiguous()
