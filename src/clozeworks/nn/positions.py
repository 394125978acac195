"""Where a token stands."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, Natural, NonNegative, Rate
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec, to_dict
from clozeworks.nn.init import CustomInit


@dataclass(slots=True)
class Positions(Spec):
    """Base of what says where a token stands by a vector that is added to the word's; for scores see `Bias`."""

    limited_by: ClassVar[str] = "length"  # the field that says how many positions there are

    @property
    def limit(self) -> int | None:
        """How many positions there are; None: any number."""
        return None

    def fit(self, where: str, width: int) -> None:
        """Raise `RecipeError` if it cannot give vectors so wide."""

    def check_length(self, where: str, longest: int) -> None:
        """Raise `RecipeError` if examples of so many tokens have no position."""
        if self.limit is not None and longest > self.limit:
            needed = f"examples are up to {longest} tokens long"
            given = to_dict(getattr(self, self.limited_by))
            raise RecipeError(f"{where}.{self.limited_by}", given, needed, f"use at least {longest}")

    @abstractmethod
    def build(self, width: int) -> nn.Module: ...


@dataclass(slots=True)
class LearnedPositions(Positions):
    """One learned vector a position, added to the word's (Devlin et al. 2018).

    `offset` rows stand unused before position 0: RoBERTa counts from padding_idx + 1 = 2 and so keeps 514 rows for 512.

    [...] -> [..., D].
    """

    length: Count = 512
    offset: Natural = 0

    @property
    def limit(self) -> int:
        return self.length

    def build(self, width: int) -> "LearnedPositionsLayer":
        return LearnedPositionsLayer(self.length + self.offset, width, self.offset)


class LearnedPositionsLayer(nn.Module):
    """Weights of `LearnedPositions`: a table; [...] -> [..., D]."""

    def __init__(self, rows: int, width: int, offset: int):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.offset = offset

    def forward(self, position: Tensor, key: DropoutKey | None = None) -> Tensor:
        return self.table(position + self.offset if self.offset else position)


@dataclass(slots=True)
class SinusoidalPositions(Positions):
    """A fixed vector a position, added to the word's: sin and cos of p / 10000^(2i / D) (Vaswani et al. 2017, 3.5).

    `order` = halves: all sines, then all cosines (the published code); pairs: sine and cosine in turn (the paper's
    formula). The one is the other with its units in another order. Any position has a vector.

    [...] -> [..., D].
    """

    order: Literal["halves", "pairs"] = "halves"

    def fit(self, where: str, width: int) -> None:
        fit_waves(where, type(self).__name__, width)

    def build(self, width: int) -> "SinusoidalPositionsLayer":
        return SinusoidalPositionsLayer(width, self.order == "pairs")


class SinusoidalPositionsLayer(nn.Module):
    """`SinusoidalPositions`, which has no weights; [...] -> [..., D]."""

    def __init__(self, width: int, pairs: bool):
        super().__init__()
        self.width, self.pairs = width, pairs

    def forward(self, position: Tensor, key: DropoutKey | None = None) -> Tensor:
        halves = sinusoids(position, self.width)
        return halves.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2) if self.pairs else halves


@dataclass(slots=True)
class AxialPositions(Positions):
    """Positions on a grid of n1 rows and n2 columns: a vector of the row beside one of the column (Kitaev et al. 2020).

    position p has [a_{p // n2}; b_{p % n2}], of widths d1 + d2 = D: n1 d1 + n2 d2 parameters instead of n1 n2 D, hence
    room for rows of half a million tokens. A row may have any length up to n1 n2; the published class trains on rows
    of that length alone. Under `dropout` a column of the grid loses its vectors whole, a_{p // n2} included, in each
    row of the batch other ones, as there. `deviation` is that of fresh vectors, None that of other weights.

    [...] -> [..., D].
    """

    limited_by: ClassVar[str] = "shape"
    shape: tuple[Count, Count]
    widths: tuple[Count, Count]
    dropout: Rate = 0.0
    deviation: NonNegative | None = None

    @property
    def limit(self) -> int:
        return self.shape[0] * self.shape[1]

    def fit(self, where: str, width: int) -> None:
        if sum(self.widths) != width:
            needed = f"together they must give the width, {width}"
            raise RecipeError(f"{where}.widths", list(self.widths), needed, f"use {[width // 4, width - width // 4]}")

    def build(self, width: int) -> "AxialPositionsLayer":
        return AxialPositionsLayer(self)


class AxialPositionsLayer(CustomInit):
    """Weights of `AxialPositions`: a table of rows and one of columns; [...] -> [..., D]."""

    def __init__(self, spec: AxialPositions):
        super().__init__()
        self.dropout, self.deviation = spec.dropout, spec.deviation
        self.rows = nn.Parameter(torch.zeros(spec.shape[0], spec.widths[0]))
        self.columns = nn.Parameter(torch.zeros(spec.shape[1], spec.widths[1]))

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.normal_(parameter, 0.0, self.deviation or deviation, generator)

    def forward(self, position: Tensor, key: DropoutKey | None = None) -> Tensor:
        count = len(self.columns)
        column = position % count
        vectors = torch.cat([self.rows[position // count], self.columns[column]], -1)
        if key is None or not self.dropout:
            return vectors
        kept = dropout(vectors.new_ones(*position.shape[:-1], count), self.dropout, key)
        return vectors * kept.gather(-1, column)[..., None]


def fit_waves(where: str, part: str, width: int) -> None:
    """Raise `RecipeError` if vectors of sines and cosines cannot be so wide."""
    if width % 2:
        needed = f"it has as many sines as cosines, and width {width} is odd"
        raise RecipeError(where, part, needed, "use an even width")


def sinusoids(position: Tensor, width: int) -> Tensor:
    """[..., D] of positions [...]: sin(p / 10000^(2i / D)), then the cosines of the same (Vaswani et al. 2017, 3.5)."""
    rates = 10_000.0 ** -(torch.arange(0, width, 2, device=position.device) / width)
    angles = position[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)
