"""Counts of parameters, arithmetic and what autograd keeps are those of real models."""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import clozeworks as cw
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError
from clozeworks.model import Model
from clozeworks.nn.kernels import linear
from clozeworks.nn.kernels.backends import dense
from clozeworks.nn.mixers import attention
from studies.scale.footprint import Shape, flops, keeps, layer_flops, recomputed
from tests.studies.counted import HIDDEN, batch_of, shape_of, shape_of_recipe, tiny


@pytest.fixture(params=[True, False], ids=["other", "plain"])
def product(request, monkeypatch):
    """Both ways to make a matrix product, whatever this processor prefers."""
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch was built without the other library")
    monkeypatch.setattr(linear, "other_is_faster", lambda: request.param)


@pytest.mark.parametrize("name", ["bert_large", "roberta_large", "bert_tiny"])
def test_parameters_are_those_of_the_model(name):
    shape, model = shape_of(name), cw.build(cw.recipe("bert_tiny")) if name == "bert_tiny" else None
    assert shape.parameters == cw.count_parameters(cw.recipe(name))
    if model is not None:
        assert shape.tensors == len(list(model.parameters()))
        assert shape.blocks == sum(each.numel() for each in model.encoder.stack.parameters())
        assert shape.blocks + shape.tables == shape.parameters


def test_the_published_size():
    assert shape_of().parameters == 335_141_888 + 1024 * 1025 + 2 * 1024 + 30522 + 2 * 1025  # encoder, heads


# ---- arithmetic


@pytest.mark.parametrize("name", ["bert_large", "roberta_base", "bert_mini"])
def test_arithmetic_is_what_torch_counts(name, monkeypatch):
    monkeypatch.setattr(attention, "attend", dense)  # whose products torch counts
    recipe = cw.recipe(name)
    with torch.device("meta"):
        model = Model(recipe.encoder, recipe.objective.losses)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch_of(3, 128).to("meta"))
    assert flops(shape_of(name), 3, 128, HIDDEN) == counter.get_total_flops()


@pytest.mark.parametrize("more", [{}, {"depth": 1}, {"depth": 4}, {"name": "roberta_mini"}], ids=str)
@pytest.mark.parametrize("again", [False, True])
def test_training_takes_three_times_that_and_the_layers_once_more(more, again):
    recipe = tiny(**more)
    model, shape = cw.build(recipe), shape_of_recipe(recipe)
    model.encoder.stack.recompute = again
    with FlopCounterMode(display=False) as counter:
        with torch.autocast("cpu", dtype=torch.bfloat16):  # in fp32 there are products that torch does not count
            output = model(batch_of(4, 64), DropoutKey.make(0, 0, 0))
        sum(output.losses.values()).backward()
    more_of_it = layer_flops(shape, 4, 64, HIDDEN) if again else 0
    assert counter.get_total_flops() == 3 * flops(shape, 4, 64, HIDDEN) + more_of_it


# ---- what autograd keeps


def saved(recipe, rows: int, length: int, precision: str, again: bool = False) -> tuple[int, int]:
    """Bytes that torch saves in a forward pass: activations, and bf16 copies of weights."""
    model = cw.build(recipe)
    model.encoder.stack.recompute = again
    batch = batch_of(rows, length)
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in weights:
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"),
    ):
        output = model(batch, DropoutKey.make(0, 0, 0))
    assert output.losses
    copies = {
        at
        for at, each in kept.items()
        if each.dtype == torch.bfloat16 and each.grad_fn is not None and each.grad_fn.name() == "TBackward0"
    }
    sizes = {at: each.untyped_storage().nbytes() for at, each in kept.items()}
    return sum(size for at, size in sizes.items() if at not in copies), sum(sizes[at] for at in copies)


SHAPES = [(4, 64), (7, 24), (2, 96)]
KINDS = [
    {}, {"depth": 3}, {"depth": 1}, {"weights": 0.0}, {"states": 0.0}, {"name": "roberta_mini"},
    {"name": "roberta_mini", "weights": 0.0},
]  # fmt: skip


@pytest.mark.parametrize("more", KINDS, ids=str)
@pytest.mark.parametrize(("rows", "length"), SHAPES)
def test_activations_are_what_torch_saves(more, rows, length, product):
    recipe = tiny(**more)
    activations, copies = saved(recipe, rows, length, "fp32")
    assert keeps(shape_of_recipe(recipe), rows, length, HIDDEN, "fp32").total == activations
    assert copies == 0


@pytest.mark.parametrize("more", KINDS, ids=str)
@pytest.mark.parametrize(("rows", "length"), SHAPES)
def test_activations_in_bf16_are_what_torch_saves(more, rows, length):
    recipe = tiny(**more)
    shape = shape_of_recipe(recipe)
    activations, copies = saved(recipe, rows, length, "bf16")
    assert keeps(shape, rows, length, HIDDEN, "bf16").total == activations
    assert copies == 2 * shape.matrices


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("weights", [0.0, 0.1])
def test_one_more_layer_keeps_exactly_that(precision, weights):
    two, three = (saved(tiny(depth, weights), 5, 48, precision)[0] for depth in (2, 3))
    kept = keeps(shape_of_recipe(tiny(2, weights)), 5, 48, HIDDEN, precision)
    assert three - two == kept.layer
    assert kept.last < kept.layer
    assert kept.layers == kept.layer + kept.last


@pytest.mark.parametrize("more", KINDS, ids=str)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_layers_keep_their_input(more, precision):
    recipe = tiny(**more)
    shape = shape_of_recipe(recipe)
    between, _ = saved(recipe, 4, 64, precision, again=True)
    assert recomputed(shape, 4, 64, HIDDEN, precision) == between
    assert between < keeps(shape, 4, 64, HIDDEN, precision).total


# ---- what is not counted


@dataclasses.dataclass
class Windowed:
    heads: int
    dropout: float = 0.1
    bias: None = None
    window: int = 8


def pre(recipe):
    recipe.encoder.stack.block_at(0).place = "pre"


def windowed(recipe):
    recipe.encoder.stack.block_at(0).mixer = Windowed(2)


def biased(recipe):
    recipe.encoder.stack.block_at(0).mixer.bias = object()


def narrow(recipe):
    recipe.encoder.embed.width = 64


def unlike(recipe):
    block = recipe.encoder.stack.block_at(0)
    recipe.encoder.stack.block = (block, dataclasses.replace(block, dropout=0.0))


def without_words(recipe):
    recipe.objective.losses = recipe.objective.losses[1:]


@pytest.mark.parametrize("change", [pre, windowed, biased, narrow, unlike, without_words])
def test_what_cannot_be_counted_is_refused(change):
    recipe = cw.recipe("bert_tiny")
    change(recipe)
    with pytest.raises(InputError, match="norm behind it"):
        Shape.of(recipe.encoder, recipe.objective.losses)
