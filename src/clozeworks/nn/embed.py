"""From token ids to vectors."""

import math
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from clozeworks.core.bounds import Count, Natural, Rate
from clozeworks.core.context import Context
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.characters import Characters
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions, Positions
from clozeworks.nn.words import Adaptive, WordsLayer


@dataclass(slots=True)
class Embed(Spec):
    """x = dropout(norm(word + position + segment)), then E -> D where the tables are narrower (Lan et al. 2019, 3.1).

    V x D parameters become V x E + E x D. `width` is E; None means tables as wide as the model and no projection.
    `narrow` = all: every table and the norm have width E, and their sum is projected (the published code and its
    directories). words: the words alone, x = dropout(norm(W word + b + position + segment)), which is how the paper
    counts (docs/parameters.md). With `project` there is a projection although E = D. With `scale` the word's vector is
    taken times sqrt(D) (Vaswani et al. 2017, 3.4). Position and segment come from the batch's TokenInfo, so packed rows
    need nothing special. `words` in clusters (`Adaptive`) or by their `Characters` have projections of their own,
    whatever `narrow` is; None is one table. With `dropped` = words, units are dropped of the words alone, before
    anything is added (Kitaev et al. 2020, code). `word_dropout` is the rate at which whole words are dropped,
    wherever a step has them, and the others taken times 1 / (1 - rate) (Gal & Ghahramani 2016); a table that is tied
    loses none on the way out. With `frozen` the table of words never learns, on the way out neither where it is tied.

    Token ids [B, L] -> [B, L, D].
    """

    positions: Positions | None = field(default_factory=LearnedPositions)
    segments: Natural = 2
    norm: LayerNorm | None = field(default_factory=LayerNorm)
    dropout: Rate = 0.1
    width: Count | None = None
    narrow: Literal["all", "words"] = "all"
    project: bool = False
    scale: bool = False
    words: Adaptive | Characters | None = None
    dropped: Literal["sum", "words"] = "sum"
    frozen: bool = False
    word_dropout: Rate = 0.0

    def check(self, where: str) -> None:
        if self.words is not None and self.project:
            raise RecipeError(f"{where}.project", True, "such words have projections of their own", "use false")

    def fit(self, where: str, width: int, vocab: int) -> None:
        """Raise `RecipeError` if it cannot be built so wide, for so many tokens."""
        if self.words is not None:
            self.words.fit(f"{where}.words", vocab, self.width or width)
        narrow = self.width if self.narrow == "all" and self.words is None else None
        if self.positions is not None:
            self.positions.fit(f"{where}.positions", narrow or width)

    def build(self, width: int, vocab: int) -> "EmbedLayer":
        return EmbedLayer(self, width, vocab)


class EmbedLayer(nn.Module):
    """Weights of `Embed`: tables of words, positions and segments, a norm, a projection."""

    def __init__(self, spec: Embed, width: int, vocab: int):
        super().__init__()
        inner = spec.width or width
        clusters = spec.words
        self.words_first = spec.narrow == "words" or clusters is not None
        added = width if self.words_first else inner
        self.words = clusters.build(vocab, inner, width) if clusters else WordsLayer(vocab, inner)
        if spec.frozen:
            self.words.requires_grad_(False)
        self.positions = spec.positions.build(added) if spec.positions else None
        self.segments = nn.Embedding(spec.segments, added) if spec.segments else None
        self.norm = spec.norm.build(added) if spec.norm else None
        self.project = Linear(inner, width) if not clusters and (spec.project or inner != width) else None
        self.words_dropped, self.word_dropout = spec.dropped == "words", spec.word_dropout
        self.dropout, self.scale = spec.dropout, math.sqrt(width) if spec.scale else None

    def forward(self, tokens: Tensor, side: TokenInfo, context: Context) -> Tensor:
        """Token ids [B, L] -> [B, L, D]."""
        x = self.words(tokens) if self.scale is None else self.words(tokens) * self.scale
        if self.word_dropout and context.key is not None:
            key = context.key.common(context.key.site, "word")
            kept = dropout(x.new_ones(self.words.vocab), self.word_dropout, key)
            x = x * kept[tokens][..., None]
        if self.project is not None and self.words_first:
            x = self.project(x)
        if self.words_dropped:
            x = dropout(x, self.dropout, context.at("embed").key)
        if self.positions is not None:
            x = x + self.positions(side.position, context.at("positions").key)
        if self.segments is not None:
            # Rows without segments, and models that do not tell them apart: one row broadcast instead of a lookup.
            one = side.segment is None or len(self.segments.weight) == 1
            x = x + (self.segments.weight[0] if one else self.segments(side.segment))
        if self.norm is not None:
            x = self.norm(x)
        x = x if self.words_dropped else dropout(x, self.dropout, context.at("embed").key)
        return x if self.project is None or self.words_first else self.project(x)
