"""Beam search: the most probable text after a prompt, or for many sources at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.errors import InputError
from clozeworks.inference.generation import Generated, IncrementalReader
from clozeworks.model import Model
from clozeworks.nn.positions import LearnedPositionsLayer


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """How wide is searched, and what a finished text is worth: log p(Y) / ((offset + |Y|) / (offset + 1))^penalty.

    |Y| counts the end. With `offset` 0 the sum is divided by a power of the length, with 5 by the length penalty of Wu
    et al. 2016, which Vaswani et al. 2017 (6.1) take to the power 0.6 with four beams. A token of `never` is not
    written, and the chances of the others stay as they are.
    """

    count: int = 4
    penalty: float = 1.0
    offset: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError("beams", self.count, "at least one is needed", "4 is usual")
        if self.offset < 0:
            raise InputError("offset", self.offset, "0 or more is needed", "0 is the length itself, 5 is published")

    def worth(self, score: float, length: int) -> float:
        return score / ((self.offset + length) / (self.offset + 1)) ** self.penalty


PUBLISHED = BeamSearch(4, 0.6, 5)  # Vaswani et al. 2017, 6.1
MORE = 50  # tokens that a translation may have beyond those of its source, there


@dataclass(slots=True)
class _Search:
    """One text being searched for."""

    most: int
    how: BeamSearch
    end: int | None
    running: list[list[int]]
    scores: list[float]
    finished: list[tuple[float, Generated]] = field(default_factory=list)

    def step(self, length: int, candidates: list[tuple[float, int, int]]) -> list[tuple[int, int, float]]:
        """From the best (score, beam, token) of a step, best first: the ones to continue with; none when it is over."""
        beams, going = self.how.count, []
        for rank, (score, beam, token) in enumerate(candidates):
            if token != self.end and length < self.most:
                going.append((beam, token, score))
            elif rank < beams:
                text = Generated([*self.running[beam], token], score)
                self.finished.append((self.how.worth(score, length), text))
        self.finished = sorted(self.finished, key=lambda item: -item[0])[:beams]
        going = going[:beams]
        full = len(self.finished) == beams
        if not going or (full and self.how.worth(going[0][2], length) <= self.finished[-1][0]):
            return []
        while len(going) < beams:  # fewer words than beams
            going.append((*going[0][:2], -torch.inf))
        self.running = [[*self.running[beam], token] for beam, token, _ in going]
        self.scores = [score for _, _, score in going]
        return going


def beam_search(
    reader: IncrementalReader, prompt: list[int], most: int, how: BeamSearch, *, end: int | None = None
) -> list[Generated]:
    """The best continuations of a prompt, best first.

    Each step keeps the most likely running beams; one that reaches the end is finished if it was among the best of that
    step. The search is over when no running beam, at its present length, is worth more than the worst of as many
    finished ones as there are beams, or after `most` tokens.
    """
    return beam_search_batch(reader, [prompt], [most], how, end=end)[0]


def beam_search_batch(
    reader: IncrementalReader,
    prompts: Sequence[list[int]],
    most: Sequence[int],
    how: BeamSearch,
    *,
    end: int | None = None,
) -> list[list[Generated]]:
    """The same for several prompts of one length, each as it would be alone: one that is over leaves the others."""
    beams = how.count
    rows = torch.tensor(prompts).repeat_interleave(beams, 0)
    reader.spread(beams)
    logits = reader.read(rows)
    first = [0.0] + [-torch.inf] * (beams - 1)  # at first all beams are the same
    every = [_Search(limit, how, end, [[] for _ in range(beams)], first) for limit in most]
    going = [(at, one) for at, one in enumerate(every) if one.most > 0]
    if len(going) < len(every):
        logits = logits.view(len(every), beams, -1)[[at for at, _ in going]].flatten(0, 1)
        reader.keep((torch.tensor([at for at, _ in going])[:, None] * beams + torch.arange(beams)).flatten())
    length = 0
    while going:
        length += 1
        scores = torch.tensor([one.scores for _, one in going], device=logits.device)
        best = _best(logits, scores, how)
        chosen: list[int] = []
        tokens: list[list[int]] = []
        left = []
        for place, ((at, one), candidates) in enumerate(zip(going, best, strict=True)):
            if steps := one.step(length, candidates):
                left.append((at, one))
                chosen += [place * beams + beam for beam, _, _ in steps]
                tokens += [[token] for _, token, _ in steps]
        going = left
        if going:
            reader.keep(torch.tensor(chosen))
            logits = reader.read(torch.tensor(tokens))
    return [[one for _, one in each.finished] for each in every]


def _best(logits: Tensor, scores: Tensor, how: BeamSearch) -> list[list[tuple[float, int, int]]]:
    """logits [S * beams, V], scores [S, beams] -> of each of S the best (score, beam, token): twice the beams, so that
    as many continue even where half of them end."""
    searched, beams = scores.shape
    chances = logits.log_softmax(-1)
    if how.never:
        chances[:, list(how.never)] = -torch.inf
    vocab = chances.shape[-1]
    chances = chances.view(searched, beams, vocab) + scores[..., None]
    best = chances.flatten(1).topk(min(2 * beams, beams * vocab))
    return [
        [(score, place // vocab, place % vocab) for score, place in zip(*row, strict=True) if score > -torch.inf]
        for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def translations(
    model: Model,
    sources: Sequence[Sequence[int]],
    *,
    start: int,
    end: int,
    how: BeamSearch = PUBLISHED,
    more: int = MORE,
    batch_tokens: int = 4096,
) -> Iterator[tuple[int, list[Generated]]]:
    """What a model with a decoder writes from each source, best first, with the number of the source.

    They come as they are done: sources of like length are searched together, `batch_tokens` of them and their beams at
    a time, the longest first. A text begins after `start`, ends with `end`, and has `more` tokens than its source at
    most. An empty source gives nothing.
    """
    order = sorted((at for at, source in enumerate(sources) if len(source)), key=lambda at: len(sources[at]))
    yield from ((at, []) for at, source in enumerate(sources) if not len(source))
    longest = room(model)
    while order:
        width = len(sources[order[-1]])
        count = max(1, batch_tokens // (width * how.count))
        chosen, order = order[-count:][::-1], order[:-count]
        source = pad_sources([sources[at] for at in chosen]).to(next(model.parameters()).device)
        reader = IncrementalReader(model, source=source)
        most = [min(len(sources[at]) + more, longest) for at in chosen]
        yield from zip(chosen, beam_search_batch(reader, [[start]] * len(chosen), most, how, end=end), strict=True)


def pad_sources(sources: Sequence[Sequence[int]]) -> Batch:
    """Sources as rows of one width."""
    width = max(map(len, sources))
    tokens = torch.tensor([[*source, *[0] * (width - len(source))] for source in sources])
    real = torch.arange(width) < torch.tensor([len(source) for source in sources])[:, None]
    return from_padded(tokens, real)


def room(model: Model) -> int:
    """Tokens that can be written after the start, where positions end."""
    positions = model.top.embed.positions
    if not isinstance(positions, LearnedPositionsLayer):
        return 1 << 20
    return positions.table.num_embeddings - positions.offset - 1
