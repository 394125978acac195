"""The worst moment is as high as counted, and the rows that fit are the most."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import clozeworks as cw
from clozeworks.core.dropout import DropoutKey
from clozeworks.objectives.losses import cross_entropy
from clozeworks.optim import parameter_groups
from studies.scale import peak
from studies.scale.cluster import Cluster
from studies.scale.growth import LENGTH
from studies.scale.peak import memory, most_rows, peaks
from studies.scale.traffic import saving
from tests.studies.counted import HIDDEN, batch_of, shape_of, shape_of_recipe, tiny


class Alive(TorchDispatchMode):
    """Adds up the storages of all tensors that operations make, from their making to their end."""

    def __init__(self, *known: torch.Tensor):
        super().__init__()
        self.now, self.most = 0, 0
        self.known: set[int] = {each.untyped_storage()._cdata for each in known}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self.end, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return made

    def end(self, at: int, size: int) -> None:
        self.known.discard(at)
        self.now -= size


def measured(recipe, rows: int, length: int, precision: str, again: bool) -> int:
    """Bytes at the worst moment of a forward and a backward pass that finds the gradients of one before it."""
    model = cw.build(recipe)
    model.encoder.stack.recompute = again
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    with Alive(*model.parameters(), *gradients) as alive:
        batch = batch_of(rows, length)
        alive.most = 0
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            output = model(batch, DropoutKey.make(0, 0, 0))
        sum(output.losses.values()).backward()
    return alive.most


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"depth": 1},
        {"depth": 12},
        {"weights": 0.0},
        {"weights": 0.0, "inner": 384},
        {"states": 0.0},
        {"vocab": 3000},
    ],
    ids=str,
)
@pytest.mark.parametrize(("rows", "length"), [(8, 128), (16, 40)])
def test_the_worst_moment_is_as_high_as_counted(more, precision, again, rows, length):
    recipe = tiny(**more)
    counted = max(each.total for each in peaks(shape_of_recipe(recipe), rows, length, HIDDEN, precision, again))
    assert counted == pytest.approx(measured(recipe, rows, length, precision, again), rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_few_predictions_leave_the_gradient_of_a_large_table(precision):
    recipe = tiny(depth=6, vocab=6000)
    counted = max(each.total for each in peaks(shape_of_recipe(recipe), 2, 96, HIDDEN, precision))
    assert counted == pytest.approx(measured(recipe, 2, 96, precision, again=False), rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("predictions", [20, 150, 200, 400])
def test_logits_come_in_pieces(precision, predictions, monkeypatch):
    for module in (cross_entropy, peak):
        monkeypatch.setattr(module, "BUDGET", 4 * 9000 * 150)
    recipe = tiny(vocab=9000, weights=0.0)
    shape, length = shape_of_recipe(recipe), 24
    rows = round(predictions / HIDDEN / length)
    counted = max(each.total for each in peaks(shape, rows, length, HIDDEN, precision, again=True))
    assert counted == pytest.approx(measured(recipe, rows, length, precision, again=True), rel=0.01)


def test_weights_gradients_moments_and_checkpoint_are_what_training_holds():
    recipe = tiny()
    shape, model = shape_of_recipe(recipe), cw.build(recipe)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    state = parameter_groups.read_state(model, adam)
    weights, gradients = (
        sum(each.nbytes for each in tensors) for tensors in (model.parameters(), (p.grad for p in model.parameters()))
    )  # fmt: skip
    moments = sum(each.nbytes for each in state.values())
    held = memory(shape, 1, LENGTH, HIDDEN, 8, sharded=False, again=False)
    assert (held.weights, held.gradients, held.moments) == (weights, gradients, moments - 4 * shape.tensors)
    assert saving(shape, Cluster(), 8, 1.0, sharded=False).size == weights + moments


@given(st.sampled_from([1, 8, 64, 512]), st.booleans(), st.booleans(), st.floats(6e9, 200e9))
def test_the_rows_that_fit_are_the_most(ranks, sharded, again, room):
    shape = shape_of()
    rows = most_rows(room, shape, LENGTH, HIDDEN, ranks, sharded, again)
    held = lambda count: memory(shape, count, LENGTH, HIDDEN, ranks, sharded, again).total  # noqa: E731
    assert held(rows + 1) > room
    assert not rows or held(rows) <= room


@pytest.mark.parametrize("again", [False, True])
def test_sharding_divides_what_is_fixed(again):
    whole, parts = (memory(shape_of(), 16, LENGTH, HIDDEN, 64, sharded, again) for sharded in (False, True))
    assert whole.weights + whole.gradients + whole.moments == 16 * shape_of().parameters
    assert parts.moments == pytest.approx(whole.moments / 64, abs=8)
    assert parts.activations + parts.passing <= whole.total - 16 * shape_of().parameters


def test_recomputing_takes_less():
    kept, again = (memory(shape_of(), 16, LENGTH, HIDDEN, 8, sharded=False, again=again) for again in (False, True))
    assert again.activations < kept.activations / 5
    assert again.total < kept.total / 2
