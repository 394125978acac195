"""Spans in training: put back after each update, paid for once a step, checkpointed, and the same when resumed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from clozeworks.exchange import checkpoint
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.mixers.attention import Attention
from clozeworks.objectives.losses.span_penalty import SpanPenalty, SpanPenaltyLayer
from clozeworks.optim.constraints import constrain, list_constrained
from clozeworks.recipe import Recipe
from clozeworks.train import metrics_log
from clozeworks.train.guard import SpikeGuard, Verdict
from clozeworks.train.pretrain import pretrain
from tests.train.test_segment_memory import LENGTH, distance, remembering, trained

PRICE = 0.01


def spanning(price: float = PRICE, init: float = 0.1, **train: Any) -> Recipe:
    r = remembering(**train)
    heads = r.encoder.stack.block_at(0).mixer.heads  # pyright: ignore[reportAttributeAccessIssue]
    r.encoder.stack.block_at(0).mixer = Attention(
        heads, bias=AdaptiveSpan(24, DistanceTable(24), 4, init), affine=False
    )
    r.objective.losses += (SpanPenalty(price),)
    return r


def shares(model: Any) -> torch.Tensor:
    return torch.stack([module.share.detach() for module in list_constrained(model)])


def test_accumulation_pays_once_a_step(data: Path):
    runs = [trained(spanning(micro_tokens=micro), data, 5) for micro in (None, 2 * LENGTH, LENGTH)]
    model, steps, _ = runs[0]
    for other, their_steps, _ in runs[1:]:
        assert distance(model, other) < 2e-6
        for name in ("loss", "span_penalty", "average_span"):
            ours, theirs = (
                [s.loss if name == "loss" else s.metrics[name] for s in run] for run in (steps, their_steps)
            )
            assert theirs == pytest.approx(ours, rel=1e-5)


def test_the_penalty_is_the_sum_of_the_mean_spans_and_no_part_of_the_loss(data: Path):
    model, steps, _ = trained(spanning(), data, 1, dropout=False)
    depth = len(list_constrained(model))
    assert steps[0].metrics["span_penalty"] == pytest.approx(depth * 2.4)
    assert steps[0].metrics["average_span"] == 3 + 4
    assert steps[0].loss == pytest.approx(steps[0].metrics["next_token"])
    # A gradient of price * limit / heads a head, and what the loss has: without a price, that alone.
    norms = [trained(spanning(price), data, 1, dropout=False)[1][0].grad_norm for price in (0.0, 10.0)]
    heads = shares(model).shape[1]
    assert norms[1] == pytest.approx((depth / heads) ** 0.5 * 240, rel=0.05)
    assert norms[0] < 20


def test_shares_never_leave_their_bounds(data: Path, monkeypatch: pytest.MonkeyPatch):
    model, _, _ = trained(spanning(price=100.0, init=0.001), data, 4)
    assert bool((shares(model) == 0).all())
    rewarded = lambda self, hidden, batch: (-hidden.penalties["span"].sum(), {})  # noqa: E731
    monkeypatch.setattr(SpanPenaltyLayer, "forward", rewarded)
    model, _, _ = trained(spanning(price=100.0, init=0.999), data, 4)
    assert bool((shares(model) == 1).all())
    assert [module.furthest() for module in list_constrained(model)] == [24] * len(list_constrained(model))


def test_a_skipped_step_changes_no_span(data: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SpikeGuard, "__call__", lambda self, number, *_: Verdict("skip"))
    model, steps, _ = trained(spanning(), data, 2)
    assert steps[-1].skipped
    assert bool((shares(model) == 0.1).all())


def test_the_host_is_told_after_one_wait_for_all(monkeypatch: pytest.MonkeyPatch):
    modules: Any = [AdaptiveSpan(1024, DistanceTable(1024), init=part / 4).build(8, 2, 4) for part in range(5)]
    waits = []
    monkeypatch.setattr(torch.Tensor, "tolist", _counted(torch.Tensor.tolist, waits))
    monkeypatch.setattr(torch.Tensor, "__float__", _counted(torch.Tensor.__float__, waits))
    constrain(modules)
    assert [module.furthest() for module in modules] == [64, 320, 576, 832, 1024]
    assert len(waits) == 1


def _counted(method: Any, waits: list[int]) -> Any:
    def counted(self: torch.Tensor) -> Any:
        waits.append(1)
        return method(self)

    return counted


def test_a_run_continues_bit_for_bit(data: Path, tmp_path: Path):
    recipe = spanning(steps=4, save_every=2, evaluate_every=4, log_every=1)
    whole = pretrain(recipe, [(data, 1.0)], tmp_path / "whole", progress=False)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    checkpoint.drop_after(tmp_path / "again", 2)
    again = pretrain(recipe, [(data, 1.0)], tmp_path / "again", progress=False)
    assert again.resumed == 2
    files = [(run.checkpoint / "model.safetensors").read_bytes() for run in (whole, again)]
    assert files[0] == files[1]
    rows = metrics_log.read(tmp_path / "again" / "metrics.jsonl")
    assert [row["average_span"] >= 4 for row in rows] == [True] * len(rows)
    assert rows[-1]["split"] == "heldout"
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["next_token"])
