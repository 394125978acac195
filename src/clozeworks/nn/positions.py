"""Where a token stands."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, Natural, NonNegative, Positive, Rate
from clozeworks.core.context import Context
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


@dataclass(slots=True)
class Rotary(Spec):
    """Rotary position embedding (Su et al. 2021, RoFormer, 3.2).

    q'_i = R(i) q_i,  k'_j = R(j) k_j;  R(p) turns units 2f and 2f + 1 of a head by p base^(-2f / d)

    so that q'_i . k'_j depends on the distance i - j alone: no position is added to words, none is too far, and values
    stay as they are. Positions restart in every document, hence packed rows and remembered ones need nothing special.
    Neighbouring units make a pair, as in the published model; others pair a unit with the one half a head away, which
    is the same with units in another order.

    q, k [B, H, L, d] -> the same. O(L d), no weights.
    """

    base: Positive = 10_000.0

    def fit(self, where: str, head_width: int) -> None:
        """Raise `RecipeError` if heads so wide have no pairs of units."""
        if head_width % 2:
            needed = f"units are turned in pairs, and a head has {head_width}"
            raise RecipeError(where, "Rotary", needed, "use other heads or another width, so that it is even")

    def frequencies(self, head_width: int, device: torch.device | None = None) -> Tensor:
        """Radians a position by which each pair of units is turned: [d / 2]."""
        return self.base ** -(torch.arange(0, head_width, 2, device=device) / head_width)

    def rotate(self, x: Tensor, position: Tensor, context: Context, side: str) -> Tensor:
        """x [B, H, n, d] at positions [B, n]; the turns are computed by the first layer for all, once a `side`."""
        name = f"rotary.{side}.{self.base}.{x.shape[-1]}"
        turns = context.once(name, lambda: self._turns(position, x.shape[-1]))
        if torch.compiler.is_compiling():  # graphs have no complex numbers
            a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
            real, imaginary = turns.real, turns.imag
            return torch.stack([a * real - b * imaginary, a * imaginary + b * real], -1).flatten(-2).to(x.dtype)
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

    def _turns(self, position: Tensor, head_width: int) -> Tensor:
        """[B, 1, n, d / 2] complex numbers of length 1."""
        angles = position[:, None, :, None] * self.frequencies(head_width, position.device)
        return torch.polar(torch.ones_like(angles), angles)


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
