"""Each optimizer against its formula, written again in float64, and against its relatives; resumed to the bit."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.exchange import checkpoint
from clozeworks.exchange.tensors import assign
from clozeworks.optim import parameter_groups
from clozeworks.optim.keep import Keep
from clozeworks.optim.optimizers.muon import orthogonalize
from clozeworks.optim.optimizers.optimizer import Group, Optimizer
from clozeworks.optim.settings import Adagrad, Adam, AdamW, EmbeddingRate, Lamb, LayerRates, Muon
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe
from clozeworks.train.pretrain import pretrain

Formula = Callable[[np.ndarray, list[np.ndarray], float, bool], np.ndarray]
RATE, STEPS = 0.05, 3
EVERY: dict[str, Optimizer] = {
    "adamw": AdamW(),
    "adam": Adam(),
    "corrected_adam": Adam(correction=True),
    "lamb": Lamb(),
    "corrected_lamb": Lamb(correction=True),
    "adagrad": Adagrad(),
    "muon": Muon(),
    "layer_rates": LayerRates(Adam(correction=True), factor=0.5),
    "embedding_rate": EmbeddingRate(LayerRates(AdamW(), factor=0.5), factor=0.25),
}


def updated(settings: Optimizer, start: np.ndarray, gradients: list[np.ndarray], decays: bool) -> np.ndarray:
    """A tensor after these gradients, as the library has it."""
    parameter = nn.Parameter(torch.tensor(start, dtype=torch.float32))
    torch_optimizer = settings.build([Group([parameter], decays)], RATE)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        torch_optimizer.step()
    return parameter.detach().numpy()


def averages(gradients: list[np.ndarray], b1: float, b2: float) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(t, m, v) of each step."""
    results, m, v = [], np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        results.append((t, m, v))
    return results


def adamw(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool) -> np.ndarray:
    for t, m, v in averages(gradients, 0.9, 0.99):
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
        p = p - RATE * (step + decay * decays * p)
    return p


def adam(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool) -> np.ndarray:
    for _, m, v in averages(gradients, 0.9, 0.99):
        p = p - RATE * (m / (np.sqrt(v) + 1e-6) + decay * decays * p)
    return p


def corrected_adam(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool) -> np.ndarray:
    for t, m, v in averages(gradients, 0.9, 0.99):
        rate = RATE * math.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        p = p - rate * (m / (np.sqrt(v) + 1e-6) + decay * decays * p)
    return p


def lamb(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool, corrected: bool = False) -> np.ndarray:
    for t, m, v in averages(gradients, 0.9, 0.99):
        if corrected:
            m, v = m / (1 - 0.9**t), v / (1 - 0.99**t)
        u = m / (np.sqrt(v) + 1e-6) + decay * decays * p
        weight, step = np.sqrt((p * p).sum()), np.sqrt((u * u).sum())
        p = p - RATE * (weight / step if decays and weight > 0 and step > 0 else 1.0) * u
    return p


def corrected_lamb(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool) -> np.ndarray:
    return lamb(p, gradients, decay, decays, corrected=True)


def adagrad(p: np.ndarray, gradients: list[np.ndarray], decay: float, decays: bool) -> np.ndarray:
    total = np.zeros_like(p)
    for g in gradients:
        norm = np.sqrt((g * g).sum())
        rate = RATE * 0.03 / norm if norm > 0.03 else RATE
        total = total + g * g
        p = p - rate * g / (np.sqrt(total) + 1e-10)
    return p


MOMENTS = {"betas": (0.9, 0.99), "eps": 1e-6, "decay": 0.1}
BY_HAND: list[tuple[Optimizer, Formula]] = [
    (AdamW(**MOMENTS), adamw),
    (Adam(**MOMENTS), adam),
    (Adam(**MOMENTS, correction=True), corrected_adam),
    (Lamb(**MOMENTS), lamb),
    (Lamb(**MOMENTS, correction=True), corrected_lamb),
    (Adagrad(), adagrad),
]


@pytest.mark.parametrize("decays", [True, False])
@pytest.mark.parametrize(("given", "formula"), BY_HAND, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])  # the last is the size of eps, the second below the clip
def test_three_steps_by_hand(given: Optimizer, formula: Formula, decays: bool, scale: float):
    draw = np.random.default_rng(7)
    start = draw.normal(size=(4, 5)).astype(np.float32).astype(np.float64)
    gradients = [(scale * draw.normal(size=(4, 5))).astype(np.float32).astype(np.float64) for _ in range(STEPS)]
    result = updated(given, start, gradients, decays)
    np.testing.assert_allclose(result, formula(start, gradients, 0.1, decays), rtol=1e-6, atol=1e-6)
    assert np.abs(result - start).max() > 1e-4  # 1e-6 is little beside what the steps do


def test_first_update_without_correction_is_larger():
    """(1 - b1) / sqrt(1 - b2) = 3.16 at the usual betas."""
    gradient = [np.full((2, 2), 0.5)]
    zero = np.zeros((2, 2))
    ratio = updated(Adam(decay=0.0), zero, gradient, True) / updated(AdamW(decay=0.0), zero, gradient, True)
    np.testing.assert_allclose(ratio, 0.1 / math.sqrt(0.001), rtol=1e-3)


def test_where_nothing_is_left_to_adapt_the_ratio_is_one():
    """A tensor of zeros has no length to take over, and an update of zeros none to divide by."""
    zero, gradient = np.zeros((3, 3)), [np.ones((3, 3))]
    np.testing.assert_array_equal(updated(Lamb(), zero, gradient, True), updated(Lamb(), zero, gradient, False))
    np.testing.assert_array_equal(updated(Lamb(decay=0.0), zero + 1, [zero], True), zero + 1)


def random_updates(model: nn.Module, optimizer: torch.optim.Optimizer, count: int, seed: int = 3) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def pair(tiny: Callable[..., Recipe]) -> tuple[nn.Module, nn.Module]:
    return build(tiny()), build(tiny())


def assert_close(one: nn.Module, other: nn.Module, tolerance: float = 1e-6) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def test_fused_is_plain(tiny):
    one, other = pair(tiny)
    fused, grouped = (
        parameter_groups.build_optimizer(one, AdamW(), 1e-2),
        parameter_groups.build_optimizer(other, AdamW(), 1e-2),
    )
    groups = [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in grouped.param_groups]
    plain = torch.optim.AdamW(groups, lr=1e-2, eps=1e-6, fused=False, foreach=False)
    random_updates(one, fused, 5)
    random_updates(other, plain, 5)
    assert_close(one, other)


def test_lamb_that_adapts_nothing_is_adam(tiny):
    one, other = pair(tiny)
    lamb, adam = (
        parameter_groups.build_optimizer(one, Lamb(), 1e-2),
        parameter_groups.build_optimizer(other, Adam(), 1e-2),
    )
    for group in lamb.param_groups:
        group["adapts"] = False
    random_updates(one, lamb, 5)
    random_updates(other, adam, 5)
    assert_close(one, other)


def test_unclipped_adagrad_is_that_of_torch(tiny):
    one, other = pair(tiny)
    random_updates(one, parameter_groups.build_optimizer(one, Adagrad(clip=None, start=0.1), 1e-2), 5)
    random_updates(other, torch.optim.Adagrad(other.parameters(), lr=1e-2, initial_accumulator_value=0.1), 5)
    assert_close(one, other)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.1, 1000), st.integers(0, 1000))
def test_the_scale_of_a_loss_does_not_change_what_is_adaptive(scale: float, seed: int):
    """Where eps is far below the gradient."""
    draw = np.random.default_rng(seed)
    start, gradients = draw.normal(size=(3, 4)), [draw.normal(size=(3, 4)) + 3 for _ in range(2)]
    larger = [scale * g for g in gradients]
    small = 1e-12
    for part in (
        AdamW(eps=small),
        Adam(eps=small),
        Adam(eps=small, correction=True),
        Lamb(eps=small),
        Adagrad(clip=None),
    ):
        one, other = (updated(part, start, grads, True) for grads in (gradients, larger))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_an_adapted_update_is_as_long_as_rate_times_its_tensor(scale: float, seed: int):
    draw = np.random.default_rng(seed)
    start = scale * draw.normal(size=(3, 4))
    moved = updated(Lamb(), start, [draw.normal(size=(3, 4))], True).astype(np.float64) - start.astype(np.float32)
    assert np.linalg.norm(moved) == pytest.approx(RATE * np.linalg.norm(start), rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-4, 1e3), st.integers(0, 1000))
def test_a_clipped_update_is_that_of_the_shortened_gradient(scale: float, seed: int):
    """The sum takes the whole gradient, the update no more than the clip's share of it."""
    draw = np.random.default_rng(seed)
    g = scale * draw.normal(size=(3, 4))
    start = np.zeros((3, 4))
    free, clipped = (updated(Adagrad(clip=clip), start, [g], True) for clip in (None, 0.03))
    np.testing.assert_allclose(clipped, free * min(1.0, 0.03 / np.linalg.norm(g)), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("part", EVERY.values(), ids=EVERY)
def test_a_tensor_without_gradient_stays_as_it_is(part: Optimizer):
    with_one, without = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    torch_optimizer = part.build([Group([with_one, without], True)], RATE)
    with_one.grad = torch.ones(2, 2)
    torch_optimizer.step()
    assert not torch.equal(with_one, torch.ones(2, 2))
    assert torch.equal(without, torch.ones(2, 2))
    without.grad = torch.ones(2, 2)  # one counts two updates now, the other one
    before = without.detach().clone()
    torch_optimizer.step()
    alone = nn.Parameter(before)
    alone.grad = torch.ones(2, 2)
    part.build([Group([alone], True)], RATE).step()
    assert torch.equal(without, alone)


@pytest.mark.parametrize("part", EVERY.values(), ids=EVERY)
def test_resumed_is_uninterrupted(part: Optimizer, tiny, data: Path, tmp_path: Path):
    """A run cut after five of nine steps and gone on with ends with the same bytes, weights and state."""
    make = lambda: tiny(9, optimizer=part, evaluate_every=99, learning_rate=0.01, keep=Keep(9))  # noqa: E731
    whole = pretrain(make(), [(data, 1.0)], tmp_path / "whole", progress=False).checkpoint
    cut = tmp_path / "cut"
    shutil.copytree(whole.parent, cut)
    shutil.rmtree(cut / checkpoint.name_of(9))
    result = pretrain(make(), [(data, 1.0)], cut, progress=False)
    assert result.resumed == 5
    for file in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        assert (result.checkpoint / file).read_bytes() == (whole / file).read_bytes(), file
        assert (cut / checkpoint.name_of(5) / file).read_bytes() != (whole / file).read_bytes(), file


@pytest.mark.parametrize("part", EVERY.values(), ids=EVERY)
def test_state_comes_back_bit_for_bit(part: Optimizer, tiny, tmp_path: Path):
    one, other = pair(tiny)
    first, second = (parameter_groups.build_optimizer(model, part, 1e-2) for model in (one, other))
    random_updates(one, first, 2)
    random_updates(other, second, 1, seed=9)  # something to be overwritten
    tensors = {
        checkpoint.MODEL: dict(one.named_parameters()),
        checkpoint.OPTIMIZER: parameter_groups.read_state(one, first),
    }
    saved = checkpoint.save(tmp_path, 2, tensors, {})
    verified = checkpoint.verify(saved)
    assign(other, verified.tensors(), verified.path)
    parameter_groups.restore(other, second, verified.tensors(checkpoint.OPTIMIZER))
    random_updates(one, first, 2)
    random_updates(other, second, 2)
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
    states = parameter_groups.read_state(one, first), parameter_groups.read_state(other, second)
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Lamm", r"optimizer = Lamm: no part of that name is known; did you mean Lamb"),
        ("MaskSpans", r"a value of type Optimizer is needed"),
        ("AdamW(betas=[0.9,1])", r"optimizer\.betas\.1 = 1: a number in \[0, 1\) is needed; \(0\.9, 0\.999\)"),
        ("Adam(eps=0)", r"optimizer\.eps = 0: a number above 0 is needed"),
        ("Lamb(decay=-1)", r"optimizer\.decay = -1: 0 or more is needed"),
        ("Adagrad(clip=0)", r"optimizer\.clip = 0: a number above 0 is needed; 0\.03 is usual$"),
        ("Adagrad(eps=0)", r"optimizer\.eps = 0: "),
        ("Adagrad(start=-1)", r"optimizer\.start = -1: "),
        ("LayerRates(factor=2)", r"optimizer\.factor = 2: a number in \(0, 1\] is needed"),
        ("LayerRates(optimizer=Lamb(eps=-1))", r"optimizer\.optimizer\.eps = -1: "),
        ("LayerRates(optimizer=LayerRates)", r"these rates are set once"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, message: str):
    r = recipe("bert_tiny")
    with pytest.raises(RecipeError, match=message):
        spec.set_path(r, "train.optimizer", text)
        spec.check(r, r.name)


@pytest.mark.parametrize("part", EVERY.values(), ids=EVERY)
def test_a_part_of_the_recipe(part: Optimizer):
    r = recipe("bert_tiny")
    r.train.optimizer = part
    spec.check(r, r.name)
    assert spec.from_dict(spec.to_dict(r)) == r


# ---- Muon


def newton_schulz(u: np.ndarray, rounds: int) -> np.ndarray:
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / np.linalg.norm(x)
    for _ in range(rounds):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if u.shape[0] > u.shape[1] else x


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_muon_is_its_formula(shape: tuple[int, int]):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), [rng.normal(size=shape) for _ in range(STEPS)]
    settings = Muon(momentum=0.9, scale=2.0, rounds=3, hidden_decay=0.1)
    parameter = nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = settings.build([Group([parameter], True, hidden=frozenset({id(parameter)}))], RATE)
    p, m = start, np.zeros(shape)
    for g in gradients:
        parameter.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
        m = 0.9 * m + g
        turn = newton_schulz(g + 0.9 * m, 3)
        p = p * (1 - RATE * 0.1) - RATE * 2.0 * max(1.0, shape[0] / shape[1]) ** 0.5 * turn
    np.testing.assert_allclose(parameter.detach().numpy(), p, atol=2e-6)


def test_muon_turns_every_direction_alike():
    """Singular values of an update lie about 1, however unlike those of its gradient are."""
    u, _, v = np.linalg.svd(np.random.default_rng(1).normal(size=(16, 24)), full_matrices=False)
    gradient = torch.tensor(u * np.geomspace(1, 0.05, 16) @ v, dtype=torch.float32)
    values = torch.linalg.svdvals(orthogonalize(gradient[None], 5)[0])
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.3


def test_muon_leaves_tables_norms_biases_and_heads_to_adamw():
    r = recipe("bert_tiny")
    r.encoder.vocab = 50
    model = build(r)
    one, other = (parameter_groups.build_optimizer(model, settings, RATE) for settings in (Muon(), AdamW()))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    turned = {names[id(p)] for group in one.param_groups if group["orthogonal"] for p in group["params"]}
    assert turned == {name for name in names.values() if ".stack." in name and name.endswith(".weight")
                      and "norm" not in name}  # fmt: skip
    every = lambda optimizer: {id(p) for group in optimizer.param_groups for p in group["params"]}  # noqa: E731
    assert every(one) == every(other)
