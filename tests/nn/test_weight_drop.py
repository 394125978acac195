"""Recurrent layers of another width, and recurrent weights that a step has not all of."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.block import Block
from clozeworks.nn.mixers.lstm import LSTM, LSTMLayer
from clozeworks.nn.stack import Stack
from tests.toys import packed

WIDTH, OUT, RATE = 6, 10, 0.3
ROWS = [[3, 4], [1, 2, 2], [7], [5]]


def layer(spec: LSTM, width: int = WIDTH) -> LSTMLayer:
    torch.manual_seed(0)
    made = spec.build(width).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.5)
    return made


def keyed(lengths: list[list[int]], step: int = 1, first: int = 0, **more) -> Context:
    key = DropoutKey.make(0, step, rows=range(first, first + len(lengths)))
    return packed(lengths, sum(lengths[0]), "causal", key=key, **more)


def weights_of(made: LSTMLayer, step: int = 1, *site: int) -> Tensor:
    """R as a step has it."""
    return made._recurrent(keyed([[7]], step).at(*site).key).detach()


@pytest.mark.parametrize("backend", ["auto", "dense"])
@pytest.mark.parametrize("out", [3, OUT])
def test_another_width_is_torchs_hidden_size(out, backend):
    ours = layer(LSTM(width=out))
    theirs = nn.LSTM(WIDTH, out, batch_first=True).double()
    state = {"weight_ih_l0": ours.enter, "weight_hh_l0": ours.state, "bias_ih_l0": ours.bias}
    theirs.load_state_dict(state | {"bias_hh_l0": torch.zeros_like(ours.bias)})
    x = torch.randn(4, 7, WIDTH, dtype=torch.double, requires_grad=True)
    mine, expected = ours(x, None, packed([[7]] * 4, 7, "causal", backend=backend))[0], theirs(x)[0]
    torch.testing.assert_close(mine, expected)
    slopes = torch.randn_like(expected)
    other = dict(theirs.named_parameters())
    torch.testing.assert_close(
        torch.autograd.grad((mine * slopes).sum(), [x, ours.enter, ours.state, ours.bias]),
        torch.autograd.grad((expected * slopes).sum(), [x, *(other[name] for name in state)]),
    )
    whole = ours(x, None, packed(ROWS, 7, "causal", backend=backend))[0]
    for row, lengths in enumerate(ROWS):
        for text, start in zip(lengths, [sum(lengths[:n]) for n in range(len(lengths))], strict=True):
            alone = theirs(x[row : row + 1, start : start + text])[0]
            torch.testing.assert_close(whole[row : row + 1, start : start + text], alone)


def test_widths_follow_from_block_to_block():
    mixers = (LSTM(width=OUT), LSTM(width=OUT), LSTM(width=4))
    blocks = tuple(Block(mixer, None, norm=None, residual=False, dropout=0.0) for mixer in mixers)
    stack = Stack(3, blocks, memory=1)
    check(stack)
    stack.fit("stack", WIDTH)
    assert stack.out_width(WIDTH) == 4
    hidden = stack.build(WIDTH)(torch.randn(2, 7, WIDTH), packed([[7]] * 2, 7, "causal"), layers=True)
    assert [each.shape[-1] for each in hidden.layers] == [WIDTH, OUT, OUT, 4]
    assert [layer.h.shape for layer in hidden.memory.layers] == [(2, OUT), (2, OUT), (2, 4)]
    with pytest.raises(RecipeError, match="cannot be added to width 6"):
        Stack(1, Block(LSTM(width=OUT), None, norm=None)).fit("stack", WIDTH)


@pytest.mark.parametrize("backend", ["auto", "dense"])
@pytest.mark.parametrize("lengths", [[[7]] * 4, ROWS], ids=["plain", "packed"])
def test_a_whole_step_is_read_with_the_same_weights(lengths, backend):
    """One mask at all times and rows: the layer is that of the thinned matrix."""
    ours, x = layer(LSTM(width=OUT, weight_drop=RATE)), torch.randn(4, 7, WIDTH, dtype=torch.double)
    thin = layer(LSTM(width=OUT))
    with torch.no_grad():
        thin.state.copy_(weights_of(ours))
    torch.testing.assert_close(
        ours(x, None, keyed(lengths, backend=backend))[0], thin(x, None, packed(lengths, 7, "causal"))[0]
    )


def test_weights_are_missing_or_larger_and_on_average_as_they_are():
    ours = layer(LSTM(width=OUT, weight_drop=RATE))
    drawn = torch.stack([weights_of(ours, step) for step in range(400)])
    kept = drawn != 0
    expected = (ours.state.detach() / (1 - RATE)).expand_as(drawn)
    torch.testing.assert_close(drawn[kept], expected[kept])
    assert float((~kept).double().mean()) == pytest.approx(RATE, abs=0.01)
    error = (drawn.mean(0) - ours.state.detach()).abs() / ours.state.detach().abs()
    assert float(error.max()) < 5 * (RATE / (1 - RATE) / 400) ** 0.5, "five standard errors"


def test_steps_and_depths_have_other_masks_and_rows_the_same():
    ours = layer(LSTM(width=OUT, weight_drop=RATE))
    assert torch.equal(weights_of(ours), weights_of(ours))
    assert not torch.equal(weights_of(ours), weights_of(ours, 2))
    assert not torch.equal(weights_of(ours, 1, 0), weights_of(ours, 1, 1))
    x = torch.randn(4, 7, WIDTH, dtype=torch.double)
    whole = ours(x, None, keyed(ROWS))[0]
    cut = [ours(x[n : n + 2], None, keyed(ROWS[n : n + 2], first=n))[0] for n in (0, 2)]
    torch.testing.assert_close(torch.cat(cut), whole)
    assert ours._recurrent(None) is ours.state


def test_what_is_missing_has_no_gradient():
    ours, x = layer(LSTM(weight_drop=RATE)), torch.randn(4, 7, WIDTH, dtype=torch.double)
    for lengths in ([[7]] * 4, ROWS):
        (gradient,) = torch.autograd.grad(ours(x, None, keyed(lengths))[0].square().sum(), ours.state)
        assert torch.equal(gradient != 0, weights_of(ours) != 0)


def test_a_state_carried_on_is_one_long_row_while_the_weights_are_the_same():
    ours = layer(LSTM(width=OUT, weight_drop=RATE))
    x = torch.randn(2, 12, WIDTH, dtype=torch.double)
    whole, end = ours(x, None, keyed([[12]] * 2, carry=True))
    state, out = None, []
    for part in x.split(5, 1):
        given, state = ours(part, state, keyed([[part.shape[1]]] * 2, carry=True))
        out.append(given)
    torch.testing.assert_close(torch.cat(out, 1), whole)
    torch.testing.assert_close(dataclasses.astuple(state), dataclasses.astuple(end))


def test_units_of_what_is_read_are_missing_for_a_whole_text():
    ours = layer(LSTM(locked=0.5))
    x = torch.randn(4, 7, WIDTH, dtype=torch.double, requires_grad=True)
    out = ours(x, None, keyed(ROWS))[0]
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    reached = (gradient != 0)[3, :5]
    assert bool((reached == reached[0]).all())
    assert 0 < int(reached[0].sum()) < WIDTH


@pytest.mark.parametrize("part", [LSTM(width=0), LSTM(weight_drop=1.0), LSTM(locked=-0.1)])
def test_what_cannot_be_is_refused(part):
    with pytest.raises(RecipeError):
        check(part)
