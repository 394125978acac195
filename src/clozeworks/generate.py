"""Tokens from a model that reads one way: the likeliest, drawn by chance, or along the best of several beams."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clozeworks.batch import Carry, Context, Keys, Memory, Side
from clozeworks.errors import InputError
from clozeworks.model import Model


class Generated(NamedTuple):
    """Tokens after the prompt, the end among them if it was reached, and the sum of their log-probabilities."""

    tokens: list[int]
    score: float


@dataclass(frozen=True, slots=True)
class Draw:
    """How the next token is chosen: the likeliest at temperature 0, else by chance among those that are left.

    Of the distribution softmax(z / temperature), only the `top_k` likeliest tokens are left, and of these the
    likeliest ones that together have the chance `top_p` (Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise InputError("temperature", self.temperature, "0 or more is needed", "0 takes the likeliest token")
        if self.top_k is not None and self.top_k < 1:
            raise InputError("top_k", self.top_k, "at least one token must be left", "40 is usual")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError("top_p", self.top_p, "a chance above 0, 1 at most, is needed", "0.9 is usual")

    def choose(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """[B, V] -> [B]."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(self.chances(logits), 1, generator=generator)[:, 0]

    def chances(self, logits: Tensor) -> Tensor:
        """[B, V], 0 for what is left out."""
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p is not None:
            ordered, index = logits.softmax(-1).sort(descending=True)
            beyond = ordered.cumsum(-1) - ordered >= self.top_p  # the likelier ones are enough already
            logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, index, beyond), -torch.inf)
        return logits.softmax(-1)


class Reader:
    """A model that has read some tokens, the same number in each of its rows, and remembers them.

    What it remembers are keys and values, of a stack with a memory the last so many; such a stack reads no more than
    `length` tokens at once if one is given. Without `cache` everything is read again each time, which gives the same
    and takes longer.
    """

    def __init__(self, model: Model, cache: bool = True, length: int | None = None):
        self.model, self.cache = model, cache
        self.most = length if model.encoder.stack.memory else None
        heads = [model.head(spec.name) for spec in model.specs if spec.name == "next_token"]
        if not heads or heads[0] is None:
            given = ", ".join(spec.name for spec in model.specs) or "no head"
            raise InputError("model", given, "one that predicts the next token is needed", "pretrain it with NextToken")
        self.logits: Callable[[Tensor], Tensor] = heads[0].logits  # pyright: ignore[reportAttributeAccessIssue]
        self.tokens: Tensor | None = None
        self.past: Memory | None = None
        self.ends: list[int] = []  # of what was read at once

    @property
    def length(self) -> int:
        return self.ends[-1] if self.ends else 0

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Tensor:
        """[B, n] more tokens -> [B, V]: the logits of the one after them."""
        begin = self.length
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], 1)
        end = self.tokens.shape[1]
        self.ends += [*range(begin + self.most, end, self.most), end] if self.most else [end]
        if not self.cache:  # a memory is made of the same pieces again; without one everything is a single piece
            begin, self.past = 0, None
        ends = [at for at in self.ends if at > begin] if self.cache or self.model.encoder.stack.memory else [end]
        last = self.tokens
        for upto in ends:
            last = self._read(self.tokens[:, begin:upto], begin)
            begin = upto
        return self.logits(last[:, -1])

    def _read(self, fresh: Tensor, begin: int) -> Tensor:
        """[B, n] -> [B, n, D]; what was read before them is remembered."""
        position = torch.arange(begin, begin + fresh.shape[1], device=fresh.device).expand_as(fresh)
        side = Side.make(position, torch.zeros_like(fresh), "causal")
        context = Context(side, side, "causal", past=self.past, carry=self.cache)
        hidden = self.model.encoder(fresh, side, context)
        self.past = hidden.memory
        return hidden.last

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order, some of them perhaps more than once."""
        assert self.tokens is not None
        self.tokens = self.tokens[rows]
        if self.past is not None:
            layers = tuple(_rows(layer, rows) for layer in self.past.layers)
            self.past = Memory(layers, self.past.side.each(lambda value: value[rows]))


def _rows(layer: Tensor | Carry, rows: Tensor) -> Tensor | Carry:
    return layer[rows] if isinstance(layer, Tensor) else Keys(layer.k[rows], layer.v[rows])


def draw(
    reader: Reader, prompt: list[int], most: int, how: Draw, *, end: int | None = None, count: int = 1, seed: int = 0
) -> list[Generated]:
    """`count` continuations of up to `most` tokens, each until `end`; the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    logits = reader.read(torch.tensor([prompt]).expand(count, -1))
    found: list[list[int]] = [[] for _ in range(count)]
    scores = torch.zeros(count)
    running = torch.ones(count, dtype=torch.bool)
    for number in range(most):
        token = how.choose(logits, generator)
        own = logits.log_softmax(-1).gather(1, token[:, None])[:, 0]
        scores += torch.where(running, own, 0.0)
        for row in running.nonzero()[:, 0].tolist():
            found[row].append(int(token[row]))
        if end is not None:
            running &= token != end
        if number == most - 1 or not running.any():
            break
        logits = reader.read(token[:, None])
    return [Generated(tokens, float(score)) for tokens, score in zip(found, scores, strict=True)]


def search(
    reader: Reader, prompt: list[int], most: int, beams: int, *, end: int | None = None, penalty: float = 1.0
) -> list[Generated]:
    """The best continuations that `beams` beams find, best first.

    Each step keeps the likeliest running beams; one that reaches the end is finished if it was among the best `beams`
    of that step, with the score log p / length**penalty. The search is over when no running beam, at its present
    length, beats the worst of `beams` finished ones, or after `most` tokens.
    """
    logits = reader.read(torch.tensor([prompt]).expand(beams, -1))
    running: list[list[int]] = [[] for _ in range(beams)]
    scores = torch.full((beams,), -torch.inf)
    scores[0] = 0.0  # at first all beams are the same
    finished: list[tuple[float, Generated]] = []
    for length in range(1, most + 1):
        chances = (logits.log_softmax(-1) + scores[:, None]).flatten()
        best = chances.topk(min(2 * beams, int(chances.isfinite().sum())))
        vocab = logits.shape[-1]
        going: list[tuple[int, int, float]] = []
        for rank, (score, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            beam, token = divmod(place, vocab)
            if token != end and length < most:
                going.append((beam, token, score))
            elif rank < beams:
                finished.append((score / length**penalty, Generated([*running[beam], token], score)))
        finished = sorted(finished, key=lambda item: -item[0])[:beams]
        going = going[:beams]
        if not going or (len(finished) == beams and going[0][2] / length**penalty <= finished[-1][0]):
            break
        while len(going) < beams:  # fewer words than beams
            going.append((*going[0][:2], -torch.inf))
        rows = torch.tensor([beam for beam, _, _ in going])
        reader.keep(rows)
        running = [[*running[beam], token] for beam, token, _ in going]
        scores = torch.tensor([score for _, _, score in going])
        logits = reader.read(torch.tensor([[token] for _, token, _ in going]))
    return [one for _, one in finished]
