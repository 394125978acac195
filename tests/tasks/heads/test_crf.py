"""The chain beside a sum over every sequence of tags that there is."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.tasks.heads.crf import CRF, CRFLayer


def layer(tags: int, seed: int, pace: float = 1.0, allowed: Tensor | None = None) -> CRFLayer:
    made = CRF(pace).build(tags, allowed).double()
    torch.manual_seed(seed)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0, 1 / pace)
    return made


def chains(lengths: list[int], tags: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    total = sum(lengths)
    scores = torch.randn(total, tags, dtype=torch.float64, requires_grad=True)
    return scores, torch.randint(0, tags, (total,)), torch.tensor(lengths)


def score(crf: CRFLayer, emissions: Tensor, path: tuple[int, ...]) -> Tensor:
    """As the formula says it, one sequence."""
    result = crf.start[path[0]] + crf.end[path[-1]] + sum(crf.step[a, b] for a, b in itertools.pairwise(path))
    return crf.pace * result + sum((emissions[at, tag] for at, tag in enumerate(path)), torch.zeros(()))


def every(crf: CRFLayer, emissions: Tensor) -> tuple[list[tuple[int, ...]], Tensor]:
    paths = list(itertools.product(range(len(crf.start)), repeat=len(emissions)))
    return paths, torch.stack([score(crf, emissions, path) for path in paths])


shapes = {
    "lengths": st.lists(st.integers(1, 4), min_size=1, max_size=4),
    "tags": st.integers(1, 3),
    "seed": st.integers(0, 10**6),
}


@settings(max_examples=15, deadline=None)
@given(**shapes, pace=st.sampled_from([1.0, 100.0]))
def test_loss_and_gradients_are_those_of_the_sum_over_all(lengths: list[int], tags: int, seed: int, pace: float):
    crf = layer(tags, seed, pace)
    emissions, labels, many = chains(lengths, tags, seed)
    expected = torch.zeros((), dtype=torch.float64)
    for one, truth in zip(emissions.split(lengths), labels.split(lengths), strict=True):
        _, scores = every(crf, one)
        expected = expected + scores.logsumexp(0) - score(crf, one, tuple(truth.tolist()))
    loss = crf(emissions, labels, many)
    torch.testing.assert_close(loss, expected)
    leaves = [emissions, *crf.parameters()]
    wanted = torch.autograd.grad(expected, leaves, materialize_grads=True)  # one word has no step
    for mine, other in zip(torch.autograd.grad(loss, leaves), wanted, strict=True):
        torch.testing.assert_close(mine, other)


@settings(max_examples=15, deadline=None)
@given(**shapes)
def test_best_and_chances_are_those_of_all_sequences(lengths: list[int], tags: int, seed: int):
    crf = layer(tags, seed)
    emissions, _, many = chains(lengths, tags, seed)
    best, chances = crf.best(emissions, many), crf.chances(emissions, many)
    for one, path, likely in zip(emissions.split(lengths), best.split(lengths), chances.split(lengths), strict=True):
        paths, scores = every(crf, one)
        assert tuple(path.tolist()) == paths[int(scores.argmax())]
        for at in range(len(one)):
            for tag in range(tags):
                chosen = torch.tensor([path[at] == tag for path in paths])
                torch.testing.assert_close(likely[at, tag], scores.softmax(0)[chosen].sum())


@settings(max_examples=15, deadline=None)
@given(**shapes, banned=st.integers(0, 2**16 - 1))
def test_the_best_that_is_allowed(lengths: list[int], tags: int, seed: int, banned: int):
    edge = tags
    bits = [[not banned >> (4 * i + j) & 1 for j in range(tags + 1)] for i in range(tags + 1)]
    crf = layer(tags, seed, allowed=torch.tensor(bits))
    emissions, _, many = chains(lengths, tags, seed)
    best = crf.best(emissions, many)
    for one, path in zip(emissions.split(lengths), best.split(lengths), strict=True):
        paths, scores = every(crf, one)
        steps = [list(itertools.pairwise((edge, *each, edge))) for each in paths]
        legal = torch.tensor([all(bits[a][b] for a, b in each) for each in steps])
        if legal.any():
            assert tuple(path.tolist()) == paths[int(scores.masked_fill(~legal, -torch.inf).argmax())]


def test_chains_beside_it_change_nothing():
    lengths = [1, 6, 2, 4, 1]
    crf = layer(4, 3)
    emissions, labels, many = chains(lengths, 4, 3)
    loss, best, chances = crf(emissions, labels, many), crf.best(emissions, many), crf.chances(emissions, many)
    alone = [
        (e, t, torch.tensor([len(e)])) for e, t in zip(emissions.split(lengths), labels.split(lengths), strict=True)
    ]
    torch.testing.assert_close(loss, torch.stack([crf(*each) for each in alone]).sum())
    assert torch.equal(best, torch.cat([crf.best(e, n) for e, _, n in alone]))
    torch.testing.assert_close(chances, torch.cat([crf.chances(e, n) for e, _, n in alone]))


def test_fresh_it_is_the_softmax_at_each_word():
    crf = CRF().build(5)
    emissions, labels, lengths = torch.randn(9, 5), torch.randint(0, 5, (9,)), torch.tensor([4, 1, 4])
    torch.testing.assert_close(crf(emissions, labels, lengths), F.cross_entropy(emissions, labels, reduction="sum"))
    torch.testing.assert_close(crf.chances(emissions, lengths), emissions.softmax(-1))
    assert torch.equal(crf.best(emissions, lengths), emissions.argmax(-1))


def test_a_chain_of_a_thousand_words_and_sure_scores_stay_finite():
    crf = layer(3, 0)
    emissions = (1e3 * torch.randn(1000, 3, dtype=torch.float64)).requires_grad_()
    loss = crf(emissions, torch.zeros(1000, dtype=torch.long), torch.tensor([1000]))
    loss.backward()
    assert loss.isfinite()
    assert emissions.grad is not None
    assert emissions.grad.isfinite().all()


def test_a_pace_of_nothing_is_refused():
    with pytest.raises(RecipeError, match=r"crf.pace = 0"):
        check(CRF(pace=0), "crf")
