"""Training with rounded weights: what is left is what int8 stores, and rounding costs less than without it."""

import dataclasses

import pytest
import torch

from clozeworks.compress import Data, QuantizationAware, parse_steps
from clozeworks.compress.data import losses
from clozeworks.compress.quantize import quantize
from clozeworks.compress.training import quantization_aware
from clozeworks.compress.training.prune_weights import prunable
from clozeworks.compress.training.quantization_aware import Rounding, round_rows
from clozeworks.core.errors import InputError
from clozeworks.exchange.weights.sparse import is_sparse
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.int8.parts import quantizable
from clozeworks.nn.kernels.linear import Linear
from clozeworks.starts.transfer import digest
from tests.compress import models

pytestmark = pytest.mark.usefixtures("one_thread")


def make(name: str) -> tuple[TextEncoder, Data]:
    original = models.make_task(name) if name in models.TASKS else models.make_model(name)
    return original, dataclasses.replace(models.make_data(name), teacher=original)


def loss_of(encoder: TextEncoder, data: Data) -> float:
    values = [float(loss.detach()) for loss, _ in losses(encoder.model, data.batches(encoder))]
    return sum(values) / len(values)


@pytest.mark.parametrize("name", ["bert_tiny", "albert_mini", "classify", "awd_lstm_mini"])
def test_int8_stores_the_weights_without_another_error(name: str):
    original, data = make(name)
    before = digest(original.model)
    trained = QuantizationAware(steps=3).apply(original, data)
    assert digest(original.model) == before != digest(trained.model)
    assert trained.recipe == original.recipe
    stored = quantize(trained)
    for path, part in quantizable(trained.model).items():
        torch.testing.assert_close(stored.model.get_submodule(path).weight, part.weight.detach(), rtol=1e-6, atol=1e-7)


def test_it_learns_to_be_rounded(monkeypatch: pytest.MonkeyPatch):
    """With one level on each side of zero, which costs something; beside it the same training, rounded in the end."""
    original, data = make("classify")

    def train(levels: int, start: TextEncoder, steps: int, rate: float) -> TextEncoder:
        monkeypatch.setattr(quantization_aware, "LEVELS", levels)
        return QuantizationAware(steps=steps, learning_rate=rate).apply(start, data)

    learned = train(1, original, 80, 3e-3)
    whole = train(10**6, original, 80, 3e-3)
    rounded = train(1, whole, 1, 1e-30)  # which learns nothing
    assert loss_of(learned, data) < loss_of(rounded, data) - 0.1


def test_updates_too_small_for_a_level_add_up():
    """Straight through: what learns is not what computes."""
    original, _ = make("bert_tiny")
    model = models.copy_bundle(original).model
    rounding = Rounding(model)
    weight, first = rounding.weights[0], rounding.values[0].clone()
    least = float(first.abs().max()) / 127 / 20
    for step in range(30):
        with torch.no_grad():
            weight -= least * torch.where(first.abs() < first.abs().amax(-1, keepdim=True), 1.0, 0.0)
        rounding.after(step)
    moved = first - rounding.values[0]
    small = first.abs() < first.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(moved[small], torch.full_like(moved[small], 30 * least), rtol=1e-3, atol=1e-7)
    assert (weight.detach() == round_rows(rounding.values[0])).all()
    assert (weight.detach()[small] != round_rows(first)[small]).float().mean() > 0.9


def test_tokens_are_rounded_in_every_linear_part(monkeypatch: pytest.MonkeyPatch):
    original, data = make("bert_tiny")
    seen: set[int] = set()

    def look(module, given):
        seen.add(id(module))
        return given

    monkeypatch.setattr(quantization_aware, "_round_tokens", look)
    model = models.copy_bundle(original).model
    Rounding(model)
    next(losses(model, data.batches(original)))
    assert seen == {id(part) for part in quantizable(model).values() if isinstance(part, Linear)}


def test_what_was_pruned_stays_so():
    original, data = make("classify")
    (prune,) = parse_steps("weights=0.6")
    sparse = prune.apply(original, data)
    zeros = [weight.detach() == 0 for weight, _ in prunable(sparse.model) if is_sparse(weight.detach())]
    trained = QuantizationAware(steps=5, learning_rate=3e-3).apply(sparse, data)
    after = [weight.detach() for weight, _ in prunable(trained.model)]
    assert zeros
    assert all((weight[mask] == 0).all() for mask, weight in zip(zeros, after, strict=True))


def test_int8_models_are_refused_and_it_is_spelt_as_it_is_parsed():
    original, data = make("bert_tiny")
    with pytest.raises(InputError, match="before int8"):
        QuantizationAware().apply(quantize(original), data)
    assert parse_steps("qat=40") == (QuantizationAware(steps=40),)
    assert QuantizationAware(steps=40).spell() == "qat=40"
