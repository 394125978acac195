"""Words by how they are written: a convolution over the characters of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.bounds import Count, Natural
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.activation import FUNCTIONS
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.linear import linear

# What no byte of UTF-8 is: the ends of a sentence and of a word, and what follows a word.
OPENS, CLOSES, BEGIN, END, BLANK = range(0xF8, 0xFD)
CHARACTERS = 262  # bytes and the five above, after one that stands for nothing


@dataclass(slots=True)
class Characters(Spec):
    """x = W highway(activation(max over places of conv(characters))) + b (Kim et al. 2016; Peters et al. 2018, code).

    A word is its bytes in UTF-8 between a mark of its begin and one of its end, filled up to `length`: of a longer word
    the first length - 2 bytes count. Each byte has a vector of `width`; there are `filters` of each width of a
    convolution, (width, how many), and of each filter the largest value in the word is kept, behind which comes the
    activation. A highway keeps what it does not change: g relu(W x + b) + (1 - g) x, g = sigmoid(W' x + b'), whose b'
    begins as -2 (Srivastava et al. 2015). The special that opens a text and the one that closes it are characters of
    their own, so that they are read like words.

    Shapes [...] -> [..., D]; each different word of a batch is computed once. No word has parameters: how each id is
    written is a table of bytes that goes with the model (`spell`), and words that were not there when the model was
    trained can be added to it.
    """

    scored: ClassVar[Literal["table", "clusters"] | None] = None
    scored_by: ClassVar[str] = "NextWord"
    manner: ClassVar[str] = "reads characters"
    untraceable: ClassVar[str | None] = "words are read by their characters, those that it never met too"
    filters: tuple[tuple[Count, Count], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    width: Count = 16
    highways: Natural = 2
    activation: Literal["relu", "tanh"] = "relu"
    length: Count = 50

    def check(self, where: str) -> None:
        if not self.filters or any(wide < 1 or many < 1 for wide, many in self.filters):
            needed = "at least one (width, number) of filters, each 1 or more, is needed"
            raise RecipeError(f"{where}.filters", self.filters, needed, "(3, 64) is one")
        longest = max(wide for wide, _ in self.filters)
        if self.length < max(3, longest):
            needed = f"a word is its two ends and a byte, and a filter looks at {longest} at once"
            raise RecipeError(f"{where}.length", self.length, needed, "50 is usual")

    def fit(self, where: str, vocab: int, width: int) -> None:
        """Any number of words will do."""

    def notes(self, counts: np.ndarray) -> list[str]:
        return []

    def build(self, vocab: int, inner: int, width: int) -> "CharactersLayer":
        return CharactersLayer(self, vocab, width)


class CharactersLayer(CustomInit):
    """`spelling` [V, length] are bytes; no gradient, no part of what is counted, but saved and loaded with the rest."""

    def __init__(self, spec: Characters, vocab: int, width: int):
        super().__init__()
        self.width, self.widest, self.activation = width, max(wide for wide, _ in spec.filters), spec.activation
        self.spelling = nn.Parameter(torch.zeros(vocab, spec.length, dtype=torch.uint8), requires_grad=False)
        self.letters = nn.Parameter(torch.zeros(CHARACTERS, spec.width))
        self.convolutions = nn.ModuleList(Affine((many, spec.width, wide)) for wide, many in spec.filters)
        size = sum(many for _, many in spec.filters)
        self.highways = nn.ModuleList(Highway(size) for _ in range(spec.highways))
        self.project = Affine((width, size))

    @property
    def table(self) -> nn.Embedding:
        needed, todo = "a table of words is needed here", "use None, or a loss with a table of its own"
        raise RecipeError("encoder.embed.words", "Characters", needed, todo)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        if name == "spelling":  # until somebody says how they are written, words are their numbers
            self.spell([str(number) for number in range(len(parameter))])
        else:
            nn.init.uniform_(parameter, -1.0, 1.0, generator)

    @property
    def vocab(self) -> int:
        return len(self.spelling)

    @property
    def length(self) -> int:
        """Characters of a word, its ends among them."""
        return self.spelling.shape[1]

    def spell(self, words: Sequence[str], opens: int | None = None, closes: int | None = None) -> list[str]:
        """How each id is written; two of them may be specials. Gives the words that were too long to be written out."""
        spelling, long = spelled(words, self.length, {opens: OPENS, closes: CLOSES})
        with torch.no_grad():
            self.spelling.copy_(torch.from_numpy(spelling))
        return long

    def forward(self, tokens: Tensor) -> Tensor:
        """[...] -> [..., D]."""
        if tokens.is_meta:
            return self.vectors(self.spelling[tokens.flatten()]).view(*tokens.shape, self.width)
        words, place = tokens.unique(return_inverse=True)
        return self.vectors(self.spelling[words])[place]

    def vectors(self, spelling: Tensor) -> Tensor:
        """Bytes [n, length] -> [n, D]."""
        if not spelling.is_meta and len(spelling):
            # Behind the longest word every place looks alike: one of them is enough for the largest value.
            longest = int((spelling != BLANK).sum(1).max())
            spelling = spelling[:, : longest + self.widest]
        rows = spelling.long()
        rows = rows + torch.where(rows < OPENS, 1, CHARACTERS - BLANK - 1)
        x = self.letters[rows].transpose(1, 2)
        act = FUNCTIONS[self.activation]
        filters = cast(Iterable[Affine], self.convolutions)
        x = torch.cat([act(F.conv1d(x, each.weight, each.bias).amax(-1)) for each in filters], -1)
        for highway in self.highways:
            x = highway(x)
        return linear(x, self.project.weight, self.project.bias)


class Affine(CustomInit):
    """W and b whose outputs begin about as large as their inputs."""

    def __init__(self, shape: tuple[int, ...], bias: float = 0.0):
        super().__init__()
        self.start = bias
        self.weight, self.bias = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape[0]))

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        if name == "bias":
            nn.init.constant_(parameter, self.start)
        else:
            nn.init.normal_(parameter, 0.0, parameter[0].numel() ** -0.5, generator)


class Highway(nn.Module):
    """g relu(W x + b) + (1 - g) x with g = sigmoid(W' x + b'): [..., D] -> [..., D] (Srivastava et al. 2015)."""

    def __init__(self, width: int):
        super().__init__()
        self.gate, self.change = Affine((width, width), -2.0), Affine((width, width))

    def forward(self, x: Tensor) -> Tensor:
        g = linear(x, self.gate.weight, self.gate.bias).sigmoid()
        return x + g * (linear(x, self.change.weight, self.change.bias).relu() - x)


def spelled(words: Sequence[str], length: int, marks: dict[int | None, int]) -> tuple[np.ndarray, list[str]]:
    """Bytes [n, length] of words, those of `marks` being one character instead; and the words that were cut."""
    out, long = np.full((len(words), length), BLANK, np.uint8), []
    for number, word in enumerate(words):
        letters = bytes([marks[number]]) if number in marks else word.encode("utf-8", "replace")
        if len(letters) > length - 2:
            long.append(word)
        whole = bytes([BEGIN]) + letters[: length - 2] + bytes([END])
        out[number, : len(whole)] = np.frombuffer(whole, np.uint8)
    return out, long
