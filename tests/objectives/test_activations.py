"""Prices on activations: their formulas, whatever the rows, and no part of the loss that is reported."""

from pathlib import Path

import pytest
import torch

from clozeworks.core.batch import Hidden
from clozeworks.nn.embed import Embed
from clozeworks.objectives.losses.activation_change import ActivationChange
from clozeworks.objectives.losses.activation_size import ActivationSize
from clozeworks.objectives.objective import Loss
from clozeworks.recipe import Recipe
from tests.toys import batch_of, packed
from tests.train.conftest import data as data
from tests.train.test_segment_memory import LENGTH, distance, remembering, trained

WIDTH = 5
ROWS = [[3, 4], [1, 2, 2], [7], [5]]
FIRSTS = [0, 3, 7, 8, 10, 14, 21]


def priced(loss: Loss, hidden: Hidden) -> tuple[float, int]:
    batch = batch_of(packed(ROWS, 7, "causal"), torch.zeros(4, 7, dtype=torch.long))
    batch.real, batch.firsts = 24, torch.tensor(FIRSTS)
    module = loss.build(WIDTH, Embed().build(WIDTH, 10))
    assert not list(module.parameters())
    return float(module(hidden, batch)[0]), loss.count(batch)


def test_formulas():
    raw, dropped = torch.randn(2, 4, 7, WIDTH)
    hidden = Hidden(dropped, (raw - 9, raw))
    texts = [
        (start // 7, start % 7, length)
        for start, length in zip(FIRSTS, [length for row in ROWS for length in row], strict=True)
    ]
    size, tokens = priced(ActivationSize(), hidden)
    inside = torch.cat([dropped[row, at : at + length] for row, at, length in texts])
    assert tokens == len(inside)
    assert size / tokens == pytest.approx(float(inside.square().mean()))
    change, pairs = priced(ActivationChange(), hidden)
    steps = torch.cat([raw[row, at : at + length].diff(dim=0) for row, at, length in texts])
    assert pairs == len(steps) == 24 - 7
    assert change / pairs == pytest.approx(float(steps.square().mean()))


def with_prices(**train: object) -> Recipe:
    r = remembering(**train)
    r.encoder.stack.block_at(0).mixer.dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    r.objective.losses += (ActivationSize(), ActivationChange())
    return r


def test_they_are_minimised_and_told_apart(data: Path):
    runs = [trained(with_prices(micro_tokens=micro), data, 4) for micro in (None, 2 * LENGTH)]
    (model, steps, _), (other, their_steps, _) = runs
    assert distance(model, other) < 2e-6
    for step, theirs in zip(steps, their_steps, strict=True):
        assert step.loss == pytest.approx(step.metrics["next_token"])
        for name in ("loss", "activation_size", "activation_change"):
            ours = [s.loss if name == "loss" else s.metrics[name] for s in (step, theirs)]
            assert ours[0] == pytest.approx(ours[1], rel=1e-4)
    free = remembering()
    free.encoder.stack.block_at(0).mixer.dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    assert trained(free, data, 1)[1][0].grad_norm != pytest.approx(steps[0].grad_norm, rel=1e-3)
