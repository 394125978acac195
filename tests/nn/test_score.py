"""The three stages of soft attention, each by itself and together."""

import math

import pytest
import torch
from torch.nn import functional as F

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.init import CustomInit
from clozeworks.nn.score import Additive, Cosine, Dot, Score, ScoreLayer, attend, shares

WIDTH = 6
SCORES: dict[str, Score] = {
    "dot": Dot(),
    "scaled": Dot(scaled=True),
    "cosine": Cosine(0.2),
    "cosine, fixed": Cosine(0.2, learned=False),
    "mlp": Additive(),
    "mlp, narrow": Additive(4),
}


def built(name: str) -> ScoreLayer:
    torch.manual_seed(0)
    return SCORES[name].build(WIDTH).double()


def one(name: str, layer, q, k) -> torch.Tensor:
    """The score of one query and one key by its formula."""
    if name == "dot":
        return (q * k).sum()
    if name == "scaled":
        return (q * k).sum() / math.sqrt(WIDTH)
    if name.startswith("cosine"):
        sharpness = 5.0 if layer.sharpness is None else layer.sharpness.exp()
        return sharpness * (q * k).sum() / (q.norm() * k.norm())
    hidden = torch.tanh(layer.query.weight @ q + layer.query.bias + layer.key.weight @ k)
    return layer.value.weight[0] @ hidden


@pytest.mark.parametrize("name", SCORES)
def test_a_loop_over_pairs_gives_the_same_and_the_same_gradients(name: str):
    layer = built(name)
    query, memory = (torch.randn(*shape, WIDTH, dtype=torch.float64, requires_grad=True) for shape in ((2, 3), (2, 4)))
    seen = torch.tensor([[True] * 4, [True, True, False, False]])
    context, weights = attend(layer, query, layer.keys(memory), memory, seen)
    loose = []
    for n in range(2):
        for i in range(3):
            scores = [one(name, layer, query[n, i], memory[n, j]).exp() for j in range(4) if seen[n, j]]
            loose.append(sum(s / sum(scores) * memory[n, j] for j, s in enumerate(scores)))
    expected = torch.stack(loose).view(2, 3, WIDTH)
    torch.testing.assert_close(context, expected)
    assert weights.sum(-1).detach().allclose(torch.ones(2, 3, dtype=torch.float64))
    assert not bool(weights[1, :, 2:].any())
    towards, leaves = torch.randn_like(context), [query, memory, *layer.parameters()]
    grads = [torch.autograd.grad((each * towards).sum(), leaves, retain_graph=True) for each in (context, expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", SCORES)
def test_gradients_are_those_of_small_changes(name: str):
    layer, seen = built(name), torch.tensor([[True, True, False]])
    query, memory = (torch.randn(1, n, WIDTH, dtype=torch.float64, requires_grad=True) for n in (2, 3))
    assert torch.autograd.gradcheck(lambda q, m: attend(layer, q, layer.keys(m), m, seen)[0], (query, memory))


class Said(ScoreLayer):
    """Scores that are given beforehand."""

    def forward(self, query, keys):
        return torch.log(torch.tensor([[[0.6, 0.2, 0.2]]])).expand(len(query), query.shape[1], -1)


def test_tom_chases_jerry():
    """Weights .6, .2, .2 over three words of 512 units: C = .6 h1 + .2 h2 + .2 h3."""
    h = torch.randn(1, 3, 512)
    context, weights = attend(Said(), torch.randn(1, 1, 512), h, h, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(weights[0, 0], torch.tensor([0.6, 0.2, 0.2]))
    torch.testing.assert_close(context[0, 0], 0.6 * h[0, 0] + 0.2 * h[0, 1] + 0.2 * h[0, 2])


def test_who_sees_nothing_gets_nothing_and_no_nan():
    scores = torch.randn(2, 1, 3, requires_grad=True)
    result = shares(scores, torch.tensor([[[False] * 3], [[True, False, True]]]))
    assert result[0].tolist() == [[0, 0, 0]]
    result.square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert not bool(scores.grad[0].any())


def test_a_cosine_alone_is_nearly_flat_and_a_temperature_sharpens_it():
    keys = F.normalize(torch.randn(1, 20, WIDTH), dim=-1)
    query, seen = keys[:, :1], torch.ones(1, 20, dtype=torch.bool)
    flat, sharp = (
        attend(layer, query, layer.keys(keys), keys, seen)[1][0, 0, 0].item()
        for layer in (Cosine(t, learned=False).build(WIDTH) for t in (1.0, 0.02))
    )
    assert flat <= math.e**2 / (math.e**2 + 19) < 0.29
    assert sharp > 0.95


def test_the_temperature_begins_as_told_whatever_the_deviation():
    layer = Cosine(0.25).build(WIDTH)
    assert isinstance(layer, CustomInit)
    torch.nn.init.zeros_(layer.sharpness)
    layer.begin("sharpness", layer.sharpness, 0.02, torch.Generator())
    assert layer.sharpness.exp().item() == pytest.approx(4)


@pytest.mark.parametrize(("spec", "message"), [(Cosine(0.0), "above 0"), (Additive(0), "1 or more")])
def test_scores_that_are_none_are_refused(spec: Score, message: str):
    with pytest.raises(RecipeError, match=message):
        check(spec, "score")
