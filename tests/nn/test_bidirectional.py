"""Two stacks that never meet: which reads what, documents, states."""

import dataclasses

import pytest
import torch

from clozeworks.core.cache import BranchCaches
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import visible
from clozeworks.model import initialise
from clozeworks.nn.bidirectional import Bidirectional, BidirectionalLayer, mirrored
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.nn.mixers.split import Split
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import StackLayer
from tests.toys import packed

WIDTH = 6
FIRST = Block(LSTM(10, clip=3.0, clip_out=3.0), None, norm=None, residual=False, dropout=0.0)
ROWS = [[3, 4], [1, 2, 2], [7], [5]]


def layer(memory: int = 0) -> BidirectionalLayer:
    spec = Bidirectional(2, (FIRST, dataclasses.replace(FIRST, residual=True)), memory=memory)
    check(spec)
    module = spec.build(WIDTH)
    initialise(module, 0.02, 0)
    return module.double()


def alone(module: StackLayer, x: torch.Tensor, backward: bool = False) -> torch.Tensor:
    """One text of [1, n, D] by one of the stacks."""
    x = x.flip(1) if backward else x
    reads = module.back if backward and isinstance(module, BidirectionalLayer) else module
    last = StackLayer.forward(reads, x, packed([[x.shape[1]]], x.shape[1], "causal")).last
    return last.flip(1) if backward else last


def test_every_document_is_read_both_ways_as_if_alone():
    module, x = layer(), torch.randn(4, 7, WIDTH, dtype=torch.double)
    hidden = module(x, packed(ROWS, 7), layers=True)
    assert hidden.last.shape == (4, 7, 2 * WIDTH)
    assert torch.equal(hidden.layers[0], torch.cat([x, x], -1))
    assert torch.equal(hidden.layers[-1], hidden.last)
    for row, documents in enumerate(ROWS):
        at = 0
        for length in documents:
            text = x[row : row + 1, at : at + length]
            expected = torch.cat([alone(module, text), alone(module, text, backward=True)], -1)
            torch.testing.assert_close(hidden.last[row, at : at + length], expected[0])
            at += length


@pytest.mark.parametrize("mixer", [Attention(2), LightConv(2, 3), Split((Attention(1), LightConv(1, 3)))])
def test_padding_that_looks_like_any_query_is_turned_round_by_itself(mixer):
    torch.manual_seed(0)
    module = Bidirectional(2, Block(mixer, FeedForward(8), dropout=0.0)).build(WIDTH)
    x, context = torch.randn(2, 7, WIDTH), packed([[3], [7]], 7)
    free = dataclasses.replace(context.query, document=context.query.document.clamp(min=0))
    last = module(x, Context.make(free, context.memory, "full", offset=None)).last
    torch.testing.assert_close(last[0, :3], module(x[:1, :3], packed([[3]], 3)).last[0])


def test_who_sees_whom_by_gradient():
    module, x = layer(), torch.randn(2, 6, WIDTH, dtype=torch.double, requires_grad=True)
    context = packed([[3, 2], [4]], 6)
    out, seen = module(x, context).last, visible(context.query, context.memory)
    for row in range(2):
        for i in range(6):
            for half, before in ((slice(WIDTH), True), (slice(WIDTH, None), False)):
                (gradient,) = torch.autograd.grad(out[row, i, half].sin().sum(), x, retain_graph=True)
                touched = gradient.abs().sum(-1) > 0
                reach = torch.arange(6) <= i if before else torch.arange(6) >= i
                assert torch.equal(touched[row], seen[row, i] & reach)
                assert not bool(touched[1 - row].any())


def test_rows_of_a_direction_are_read_by_its_stack():
    """As the batch says; and the same whichever rows share it."""
    module, x = layer(memory=1), torch.randn(4, 7, WIDTH, dtype=torch.double)
    backward = torch.tensor([False, True, True, False])
    context = packed([[7]] * 4, 7, "causal", backward=backward)
    hidden = module(x, context, layers=True)
    assert hidden.last.shape == x.shape
    for row in range(4):
        reads = module.back if backward[row] else module
        expected = StackLayer.forward(reads, x[row : row + 1], packed([[7]], 7, "causal"), layers=True)
        torch.testing.assert_close(hidden.last[row], expected.last[0])
        torch.testing.assert_close(hidden.layers[1][row], expected.layers[1][0])
        for mine, theirs in zip(hidden.memory.layers, expected.memory.layers, strict=True):
            torch.testing.assert_close((mine.h[row], mine.c[row]), (theirs.h[0], theirs.c[0]))


def test_one_direction_may_be_missing_from_a_batch():
    module, x = layer(), torch.randn(2, 5, WIDTH, dtype=torch.double)
    for way in (False, True):
        context = packed([[5]] * 2, 5, "causal", backward=torch.tensor([way, way]))
        reads = module.back if way else module
        expected = StackLayer.forward(reads, x, packed([[5]] * 2, 5, "causal")).last
        torch.testing.assert_close(module(x, context).last, expected)
    plain = module(x, packed([[5]] * 2, 5, "causal")).last
    torch.testing.assert_close(plain, StackLayer.forward(module, x, packed([[5]] * 2, 5, "causal")).last)


@pytest.mark.parametrize("kind", ["full", "causal"])
def test_states_continue(kind):
    """Over rows read one way, and, as published code uses it, over texts that are read both ways."""
    module, x = layer(memory=1), torch.randn(2, 8, WIDTH, dtype=torch.double)
    more = {"backward": torch.tensor([False, True])} if kind == "causal" else {}
    first = module(x[:, :4], packed([[4]] * 2, 4, kind, **more))
    second = module(x[:, 4:], packed([[4]] * 2, 4, kind, past=first.memory, **more)).last
    if kind == "causal":
        whole = module(x, packed([[8]] * 2, 8, kind, **more)).last
        torch.testing.assert_close(second, whole[:, 4:])
        return
    assert all(isinstance(each, BranchCaches) for each in first.memory.layers)
    forth = StackLayer.forward(module, x, packed([[8]] * 2, 8, "causal")).last[:, 4:]
    turned = torch.cat([x[:, :4].flip(1), x[:, 4:].flip(1)], 1)  # each text from its end, one after the other
    back = StackLayer.forward(module.back, turned, packed([[8]] * 2, 8, "causal")).last[:, 4:].flip(1)
    torch.testing.assert_close(second, torch.cat([forth, back], -1))


def test_what_is_dropped_of_a_row_is_its_own():
    block = dataclasses.replace(FIRST, dropout=0.4)
    module = Bidirectional(2, (block, dataclasses.replace(block, residual=True)), dropout=0.3).build(WIDTH)
    x, backward = torch.randn(4, 5, WIDTH), torch.tensor([False, True, True, False])
    key = DropoutKey.make(3, rows=range(4))
    whole = module(x, packed([[5]] * 4, 5, "causal", key=key, backward=backward)).last
    some = [1, 3]
    seeds = dataclasses.replace(key, seeds=key.seeds[some])
    part = module(x[some], packed([[5]] * 2, 5, "causal", key=seeds, backward=backward[some])).last
    torch.testing.assert_close(whole[some], part)
    other = module(x, packed([[5]] * 4, 5, "causal", key=DropoutKey.make(4, rows=range(4)), backward=backward)).last
    assert not torch.allclose(whole, other)


def test_any_mixer_that_looks_back_will_do():
    module = Bidirectional(2, Block(Attention(2), None, dropout=0.0)).build(WIDTH)
    x = torch.randn(2, 6, WIDTH)
    out = module(x, packed([[6], [2, 3]], 6)).last
    back = StackLayer.forward(module.back, x[1:, 2:5].flip(1), packed([[3]], 3, "causal")).last.flip(1)
    torch.testing.assert_close(out[1:, 2:5, WIDTH:], back, atol=2e-6, rtol=1e-5)


def test_mirrored_documents_stay_at_their_places():
    context = packed(ROWS, 7)
    turn = mirrored(context.layout, torch.device("cpu"))
    assert torch.equal(turn[turn], torch.arange(28))
    assert torch.equal(context.query.document.flatten()[turn], context.query.document.flatten())
    assert turn[:7].tolist() == [2, 1, 0, 6, 5, 4, 3]


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (Bidirectional(2, FIRST, norm=LayerNorm()), "never meet"),
        (Bidirectional(2, Block(Attention(2), None), memory=3), "only a state"),
    ],
)
def test_what_cannot_be_is_refused(spec, needed):
    with pytest.raises(RecipeError, match=needed):
        check(spec)
    assert Bidirectional(2, FIRST).sees(FIRST.mixer) == {"full", "causal"}
    assert "causal" in LSH(2, head_width=4, chunk=4).honours
    with pytest.raises(ValueError, match="no order visibility"):
        side = packed([[3]], 3).query
        layer()(torch.randn(1, 3, WIDTH).double(), Context.make(side, side, "order"))
