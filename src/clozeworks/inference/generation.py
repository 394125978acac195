"""Text generation by causal language models: greedy, temperature, top-k and nucleus sampling (top-p)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.cache import Cache
from clozeworks.core.context import Context, Memory, Source
from clozeworks.core.errors import InputError
from clozeworks.core.token_info import TokenInfo
from clozeworks.model import Model
from clozeworks.nn.bidirectional import BidirectionalLayer


class Generated(NamedTuple):
    """Tokens after the prompt, the end among them if it was reached, and the sum of their log-probabilities."""

    tokens: list[int]
    score: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen: the most likely at temperature 0, else by chance among those that are left.

    Of the distribution softmax(z / temperature), only the `top_k` most likely tokens are left, and of these the
    most likely ones that together have the chance `top_p`: nucleus sampling (Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise InputError("temperature", self.temperature, "0 or more is needed", "0 takes the most likely token")
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
            beyond = ordered.cumsum(-1) - ordered >= self.top_p  # the more likely ones are enough already
            logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, index, beyond), -torch.inf)
        return logits.softmax(-1)


class IncrementalReader:
    """A model that has read some tokens, the same number in each of its rows, and remembers them.

    What it remembers are keys and values, of a stack with a memory the last so many; such a stack reads no more than
    `length` tokens at once if one is given. Without `cache`, or where a mixer has nothing to remember by, everything is
    read again each time, which gives the same and takes longer.

    A model with a decoder writes from a `source`, with a row for each of its own. The encoder reads it once, and each
    layer projects what it attends to once; rows that change places within one source leave that where it is.
    """

    def __init__(self, model: Model, cache: bool = True, length: int | None = None, source: Batch | None = None):
        self.model, self.device = model, next(model.parameters()).device
        self.cache = cache and all(getattr(layer, "carries", True) for layer in model.modules())
        self.most = length if model.encoder.stack.memory else None
        if (source is None) != (model.decoder is None):
            given = "none" if source is None else "one for a model that has no decoder"
            needed = "a decoder writes from a source, and nothing else does"
            raise InputError("source", given, needed, "check the model")
        if isinstance(model.top.stack, BidirectionalLayer):
            needed = "a text is continued by one that reads it one way"
            raise InputError("model", "one that reads both ways", needed, "pretrain gpt_mini or awd_lstm_mini for it")
        heads = [model.head(spec.name) for spec in model.specs if spec.name in ("next_token", "seq2seq")]
        if not heads or heads[0] is None or not hasattr(heads[0], "logits"):
            given = ", ".join(spec.name for spec in model.specs) or "no head"
            raise InputError("model", given, "one that predicts the next token is needed", "pretrain it with NextToken")
        self.logits: Callable[[Tensor], Tensor] = heads[0].logits  # pyright: ignore[reportAttributeAccessIssue]
        self.tokens: Tensor | None = None
        self.past: Memory | None = None
        self.ends: list[int] = []  # of what was read at once
        self.source: Source | None = None
        self.owner: Tensor | None = None  # [B] which source each row writes from
        if source is not None:
            with torch.no_grad():
                self.source = model.source(source)
            self.owner = torch.arange(len(source.tokens), device=self.device)

    @property
    def length(self) -> int:
        return self.ends[-1] if self.ends else 0

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Tensor:
        """[B, n] more tokens -> [B, V]: the logits of the one after them."""
        begin, tokens = self.length, tokens.to(self.device)
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
        side = TokenInfo.make(position, torch.zeros_like(fresh), "causal")
        context = Context.make(side, side, "causal", past=self.past, carry=self.cache, source=self.source)
        hidden = self.model.top(fresh, side, context)
        self.past = hidden.memory
        return hidden.last

    def spread(self, count: int) -> None:
        """So many rows for each source, before anything is read."""
        if self.source is not None:
            self.owner = torch.arange(len(self.source.hidden), device=self.device).repeat_interleave(count)
            self._keep_source(self.owner)

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows, in this order, some of them perhaps more than once."""
        assert self.tokens is not None
        rows = rows.to(self.device)
        self.tokens = self.tokens[rows]
        stays = self.owner is not None and torch.equal(self.owner[rows], self.owner)
        if self.owner is not None and not stays:
            self.owner = self.owner[rows]
            self._keep_source(rows)
        if self.past is not None:
            layers = tuple(layer.rows(rows) if isinstance(layer, Cache) else layer[rows] for layer in self.past.layers)
            cross = self.past.cross
            if not stays:
                cross = cross and tuple(keys and keys.rows(rows) for keys in cross)
            self.past = Memory(layers, self.past.token_info.each(lambda value: value[rows]), cross)

    def _keep_source(self, rows: Tensor) -> None:
        assert self.source is not None
        self.source = Source(self.source.hidden[rows], self.source.token_info.each(lambda value: value[rows]))


def sample(
    reader: IncrementalReader,
    prompt: list[int],
    most: int,
    how: Sampling,
    *,
    end: int | None = None,
    count: int = 1,
    seed: int = 0,
) -> list[Generated]:
    """`count` continuations of up to `most` tokens, each until `end`; the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    reader.spread(count)
    logits = reader.read(torch.tensor([prompt]).expand(count, -1)).cpu()  # drawn by the same generator everywhere
    sampled: list[list[int]] = [[] for _ in range(count)]
    scores = torch.zeros(count)
    running = torch.ones(count, dtype=torch.bool)
    for number in range(most):
        token = how.choose(logits, generator)
        own = logits.log_softmax(-1).gather(1, token[:, None])[:, 0]
        scores += torch.where(running, own, 0.0)
        for row in running.nonzero()[:, 0].tolist():
            sampled[row].append(int(token[row]))
        if end is not None:
            running &= token != end
        if number == most - 1 or not running.any():
            break
        logits = reader.read(token[:, None]).cpu()
    return [Generated(tokens, float(score)) for tokens, score in zip(sampled, scores, strict=True)]
