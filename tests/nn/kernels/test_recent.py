"""Blocks of queries with the keys in their reach: the same as all keys, whatever the spans do."""

from typing import Any

import pytest
import torch

from clozeworks.core.context import Context, Memory
from clozeworks.core.dropout import DropoutKey
from clozeworks.nn.bias import adaptive_span
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.kernels import recent
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Share, Stack
from tests.toys import packed

WIDTH = 24
BIASES = {
    "table": DistanceTable(5),
    "span": AdaptiveSpan(12, DistanceTable(12), ramp=3),
    "narrower": AdaptiveSpan(12, DistanceTable(7), ramp=3),
    "relative": AdaptiveSpan(9, Relative(), ramp=2),
    "values": AdaptiveSpan(9, Shaw(2), ramp=2),
}
SHARES = [[0.0, 0.0, 0.0], [0.2, 0.0, 0.1], [1.0, 0.5, 0.0]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recent, "BLOCK", 4)
    monkeypatch.setattr(adaptive_span, "STEP", 2)


def built(bias) -> Any:
    torch.manual_seed(0)
    mixer: Any = Attention(3, bias=bias, affine=False).build(WIDTH).double()
    for parameter in mixer.bias.parameters():
        torch.nn.init.normal_(parameter)
    return mixer


@pytest.mark.parametrize(("length", "older"), [(10, 0), (10, 7), (1, 5), (13, 20), (8, 3), (4, 0)])
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("name", BIASES)
def test_outputs_and_gradients_are_those_of_the_dense_definition(name, shares, length, older):
    mixer = built(BIASES[name])
    if name != "table":
        with torch.no_grad():
            mixer.bias.share.copy_(torch.tensor(shares))
    size = length + older
    whole = packed([[3, size - 3], [size - 2]] if size > 4 else [[size], [size]], size, "causal").query
    context = Context.make(whole.tail(length), whole, "causal", offset=older)
    x, weight = torch.randn(2, size, WIDTH, dtype=torch.float64, requires_grad=True), torch.randn(2, length, WIDTH)
    results = []
    for backend in ("dense", "auto"):
        out, _ = mixer(x[:, older:], x, context.replace(backend=backend, scratch={}))
        gradients = torch.autograd.grad((out * weight).sum(), [x, *mixer.parameters()], materialize_grads=True)
        results.append([out, *gradients])
    for fast, dense in zip(*reversed(results), strict=True):
        torch.testing.assert_close(fast, dense, atol=1e-10, rtol=1e-8)


def stack(memory: int) -> Any:
    torch.manual_seed(0)
    block = Block(
        Attention(3, bias=AdaptiveSpan(12, DistanceTable(12), ramp=3), affine=False), FeedForward(40), dropout=0.0
    )
    layer: Any = Stack(2, block, Share(bias=1), memory=memory).build(WIDTH)
    torch.nn.init.normal_(layer.blocks[0].mixer.bias.bias.table)
    return layer


def read(layer: Any, x: torch.Tensor, shares: list[float], backend: Any) -> tuple[torch.Tensor, list[int]]:
    """Pieces of one text, the span of the second layer another one before each; and how many rows layers projected."""
    past: Memory | None = None
    whole, outs, projected = packed([[24], [24]], 24, "causal").query, [], []
    for block in layer.blocks:
        block.mixer.key.register_forward_hook(lambda _, given, __: projected.append(given[0].shape[1]))
    for number, share in enumerate(shares):
        with torch.no_grad():
            layer.blocks[1].mixer.bias.share.fill_(share)
        side = whole.each(lambda value, at=8 * number: value[:, at : at + 8])
        hidden = layer(
            x[:, 8 * number : 8 * number + 8], Context.make(side, side, "causal", past=past, backend=backend)
        )
        past = hidden.memory
        outs.append(hidden.last)
    return torch.cat(outs, 1), projected


def test_a_memory_is_cut_before_it_is_projected_and_is_there_when_a_span_grows_again():
    x = torch.randn(2, 24, WIDTH)
    fast, projected = read(stack(12), x, [0.3, 0.0, 1.0], "auto")
    dense, _ = read(stack(12), x, [0.3, 0.0, 1.0], "dense")
    torch.testing.assert_close(fast, dense, atol=2e-6, rtol=1e-5)
    # Of 0, 8 and 12 older rows the first layer needs 4, the second what its span of 3.6, 0 and 12 and the ramp reach.
    assert projected == [8, 8, 8 + 4, 8 + 4, 8 + 4, 8 + 12]


def test_what_is_dropped_of_a_row_does_not_depend_on_the_rows_beside_it():
    mixer: Any = Attention(3, dropout=0.5, bias=AdaptiveSpan(12, DistanceTable(12), init=0.5), affine=False).build(
        WIDTH
    )
    x = torch.randn(3, 11, WIDTH)

    def out(rows: range, **more: Any) -> torch.Tensor:
        given = x[rows.start : rows.stop]
        return mixer(given, None, packed([[11]] * len(rows), 11, "causal", **more))[0]

    whole = out(range(3), key=DropoutKey.make(1, 2, rows=range(3)))
    cut = torch.cat(
        [
            out(range(1), key=DropoutKey.make(1, 2, rows=range(1))),
            out(range(1, 3), key=DropoutKey.make(1, 2, rows=range(1, 3))),
        ]
    )
    assert torch.equal(whole, cut)
    assert not torch.equal(whole, out(range(3)))
    mean = torch.stack([out(range(3), key=DropoutKey.make(step, rows=range(3))) for step in range(100)]).mean(0)
    torch.testing.assert_close(mean, out(range(3)), atol=0.3, rtol=0)
