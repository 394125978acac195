"""Tags that depend on the tags beside them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Positive
from clozeworks.core.spec import Spec
from clozeworks.nn.init import CustomInit

FORBIDDEN = -1e4  # what a step costs that may not be taken: where nothing else is left, a path still is


@dataclass(slots=True)
class CRF(Spec):
    """A conditional random field over a chain of words (Lafferty et al. 2001; on an encoder, Lample et al. 2016).

        score(y) = start[y_1] + sum_i e_i[y_i] + sum_i step[y_(i-1), y_i] + end[y_n];  p(y) = exp score(y) / Z

    e_i are the scores of each tag at word i. Z, a sum over all sequences of K tags, takes n steps of K^2 products (the
    forward algorithm), and so does the best sequence (Viterbi). All begins as 0: p(y) is the softmax at each word.

    start, step and end are `pace` times their parameters. An encoder is fine-tuned at rates that would leave them where
    they begin: Adam moves a parameter by about the rate whatever its gradient is, and these scores must move by whole
    numbers. With `constrain`, the best sequence keeps to the scheme of its tags, where that forbids some.
    """

    pace: Positive = 100.0
    constrain: bool = True

    def build(self, tags: int, allowed: Tensor | None = None) -> "CRFLayer":
        """`allowed` [K + 1, K + 1] bool: whether tag j may follow tag i; K is the edge of a sequence."""
        return CRFLayer(tags, self.pace, allowed if self.constrain else None)


class CRFLayer(CustomInit):
    """T words of N sequences, none of them empty, end to end; K tags. `lengths` [N] say how many words each has."""

    allowed: Tensor | None

    def __init__(self, tags: int, pace: float = 1.0, allowed: Tensor | None = None):
        super().__init__()
        self.pace = pace
        self.step = nn.Parameter(torch.zeros(tags, tags))
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.register_buffer("allowed", allowed, persistent=False)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.zeros_(parameter)

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """-log p of the tags [T], given the scores [T, K]: the sum over all sequences."""
        return self.log_partition(emissions, lengths).sum() - self.score(emissions, tags, lengths)

    def score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Of these tags, summed over the sequences."""
        lasts = lengths.cumsum(0) - 1
        inner = torch.ones(len(tags), dtype=torch.bool, device=tags.device)
        inner[lasts] = False
        firsts = lasts + 1 - lengths
        steps = self.step[tags, tags.roll(-1)][inner].sum()
        edges = self.start[tags[firsts]].sum() + self.end[tags[lasts]].sum()
        return emissions.gather(1, tags[:, None]).sum() + self.pace * (steps + edges)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """log Z of each sequence, [N]."""
        padded, _ = _padded(emissions, lengths)
        ways = _forward(padded, lengths, *self._scores()[:2])
        return (_at_end(ways, lengths) + self.pace * self.end).logsumexp(-1)

    def chances(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """p(y_i = k), [T, K]: over all that the other tags may be."""
        step, start, end = self._scores()
        padded, real = _padded(emissions, lengths)
        back = _turned(padded, lengths)
        before = _forward(padded, lengths, step, start)
        behind = _turned(_forward(back, lengths, step.t(), end), lengths)
        return (before + behind - padded).softmax(-1)[real]

    def best(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The tags of the most likely sequences, [T]."""
        step, start, end = (score.detach() for score in self._scores())
        if self.allowed is not None:
            cost = torch.where(self.allowed, 0.0, FORBIDDEN)
            step, start, end = step + cost[:-1, :-1], start + cost[-1, :-1], end + cost[:-1, -1]
        padded, real = _padded(emissions, lengths)
        score, came = start + padded[:, 0], []
        stay = torch.arange(len(start), device=emissions.device).expand_as(score)
        for at in range(1, padded.shape[1]):
            there = real[:, at, None]
            most, which = (score[:, :, None] + step).max(1)
            score = torch.where(there, most + padded[:, at], score)
            came.append(torch.where(there, which, stay))
        tag = (score + end).argmax(-1, keepdim=True)
        path = [tag]
        for which in reversed(came):
            tag = which.gather(1, tag)
            path.append(tag)
        return torch.cat(path[::-1], 1)[real]

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.pace * self.step, self.pace * self.start, self.pace * self.end


def _padded(flat: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """[T, K] -> [N, L, K], and which of these places are real, [N, L]."""
    real = torch.arange(int(lengths.max()), device=flat.device) < lengths[:, None]
    return flat.new_zeros(*real.shape, flat.shape[1]).masked_scatter(real[..., None], flat), real


def _turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence of [N, L, K] from its end to its beginning, the padding where it is."""
    at = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    at = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    return x.gather(1, at[..., None].expand_as(x))


def _forward(emissions: Tensor, lengths: Tensor, step: Tensor, start: Tensor) -> Tensor:
    """[N, L, K]: log of the sum over all sequences that have come to tag k at word i; behind the end as at the end."""
    ways = [start + emissions[:, 0]]
    for at in range(1, emissions.shape[1]):
        more = (ways[-1][:, :, None] + step).logsumexp(1) + emissions[:, at]
        ways.append(torch.where((at < lengths)[:, None], more, ways[-1]))
    return torch.stack(ways, 1)


def _at_end(x: Tensor, lengths: Tensor) -> Tensor:
    """[N, L, K] -> [N, K]: where each sequence ends."""
    return x[torch.arange(len(x), device=x.device), lengths - 1]
