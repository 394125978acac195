"""The table of words, read on the way in and again, tied, on the way out; or a table for each cluster of words."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.kernels.linear import Linear

UNSORTED = 0.02  # share of the tokens outside the first cluster, beyond what must be, that is worth a word


class WordsLayer(nn.Module):
    """V x E vectors: `forward` looks rows up; a loss may score a vector against all of them."""

    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.table = nn.Embedding(vocab, width)

    @property
    def width(self) -> int:
        return self.table.embedding_dim

    @property
    def vocab(self) -> int:
        return self.table.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)


@dataclass(slots=True)
class Adaptive(Spec):
    """Words in clusters by how frequent they are, rarer ones with narrower vectors (Baevski & Auli 2019).

    Ids are cut at `cutoffs`: cluster k has ids from cutoff k - 1 to cutoff k, vectors of width E / divide**k, and
    x = P_k word with P_k [D, E / divide**k]. With `divide` = 1 there is one table, and one P only where E is not D.
    `AdaptiveNextToken` scores words cluster by cluster on the way out. Ids have to be in order of frequency, as those
    of a words tokenizer are; any other order costs time and quality, never correctness. A cutoff that the vocabulary
    does not reach cuts nothing.
    """

    scored: ClassVar[Literal["table", "clusters"] | None] = "clusters"
    scored_by: ClassVar[str] = "AdaptiveNextToken"
    manner: ClassVar[str] = "has clusters"
    cutoffs: tuple[Count, ...]
    divide: Count = 1

    def check(self, where: str) -> None:
        if not self.cutoffs or self.cutoffs[0] < 1 or list(self.cutoffs) != sorted(set(self.cutoffs)):
            needed = "numbers of words that rise from cluster to cluster are needed"
            raise RecipeError(f"{where}.cutoffs", list(self.cutoffs), needed, "20000, 40000, 200000 are usual")

    def fit(self, where: str, vocab: int, width: int) -> None:
        """Raise `RecipeError` if it cannot be built for so many words, from vectors so wide."""
        if self.widths(vocab, width)[-1] < 1:
            needed = f"nothing is left of a width of {width} in the last of {len(self.ends(vocab))} clusters"
            raise RecipeError(f"{where}.divide", self.divide, needed, "use less, or fewer cutoffs")

    def ends(self, vocab: int) -> tuple[int, ...]:
        """Where each cluster ends."""
        return (*(cut for cut in self.cutoffs if cut < vocab), vocab)

    def widths(self, vocab: int, width: int) -> tuple[int, ...]:
        """Of the vectors of each cluster."""
        return tuple(width // max(self.divide, 1) ** k for k in range(len(self.ends(vocab))))

    def notes(self, counts: np.ndarray) -> list[str]:
        """What a user should know of a corpus that has each id so often."""
        first, total = self.ends(len(counts))[0], max(int(counts.sum()), 1)
        share, most = counts[:first].sum() / total, np.sort(counts)[::-1][:first].sum() / total
        if most - share < UNSORTED:
            return []
        order = (
            f"the first {first:,} ids are {share:.0%} of the tokens, and the most frequent as many would be {most:.0%}"
        )
        return [f"{order}: clusters are for ids in order of frequency, such as those of prepare --tokenizer words"]

    def build(self, vocab: int, inner: int, width: int) -> "AdaptiveLayer":
        return AdaptiveLayer(self, vocab, inner, width)


class AdaptiveLayer(nn.Module):
    """`inner` is E, `width` D: vectors come out as wide as the model."""

    def __init__(self, spec: Adaptive, vocab: int, inner: int, width: int):
        super().__init__()
        self.vocab, self.width, self.out_width = vocab, inner, width
        self.ends, self.widths = spec.ends(vocab), spec.widths(vocab, inner)
        self.divided = spec.divide > 1
        shapes = list(zip(self.sizes, self.widths, strict=True)) if self.divided else [(vocab, inner)]
        self.tables = nn.ModuleList(nn.Embedding(*shape) for shape in shapes)
        mapped = self.divided or inner != width
        self.projections = nn.ModuleList(Linear(own, width, bias=False) for _, own in shapes if mapped)

    @property
    def table(self) -> nn.Embedding:
        needed, todo = "one table is needed here", "use None, or a loss that scores words by clusters"
        raise RecipeError("encoder.embed.words", "Adaptive", needed, todo)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words of each cluster."""
        return tuple(end - begin for begin, end in zip((0, *self.ends), self.ends, strict=False))

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The vectors of each cluster."""
        tables = [cast(nn.Embedding, table).weight for table in self.tables]
        return tuple(tables) if self.divided else tables[0].split(self.sizes)

    def projection(self, cluster: int) -> Tensor | None:
        """[D, width of the cluster]; None where its vectors are as wide as the model."""
        if not self.projections:
            return None
        return cast(Linear, self.projections[cluster if self.divided else 0]).weight

    def forward(self, tokens: Tensor) -> Tensor:
        """[...] -> [..., D]."""
        if not self.divided:
            x = self.tables[0](tokens)
            return self.projections[0](x) if self.projections else x
        flat = tokens.flatten()
        places = members(flat, self.ends)
        parts = [
            self.projections[k](self.tables[k](flat[own] - begin))
            for k, (own, begin) in enumerate(zip(places, (0, *self.ends), strict=False))
        ]
        vectors = torch.cat(parts)
        return torch.empty_like(vectors).index_copy(0, torch.cat(places), vectors).view(*tokens.shape, self.out_width)


def cluster_of(ids: Tensor, ends: tuple[int, ...]) -> Tensor:
    return torch.bucketize(ids, torch.tensor(ends, device=ids.device), right=True)


def members(ids: Tensor, ends: tuple[int, ...]) -> list[Tensor]:
    """Where in ids [n] the words of each cluster are; on the meta device, which has shapes only, as many of each."""
    if ids.is_meta:
        return list(torch.arange(len(ids), device="meta").tensor_split(len(ends)))
    cluster = cluster_of(ids, ends)
    return [(cluster == k).nonzero()[:, 0] for k in range(len(ends))]
