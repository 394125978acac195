"""The recurrent mixer: torch's numbers, clips, documents, states."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from clozeworks.core.cache import RNNState
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import PADDING
from clozeworks.model import initialise
from clozeworks.nn.block import Block
from clozeworks.nn.mixers import lstm
from clozeworks.nn.mixers.lstm import LSTM, LSTMLayer
from clozeworks.nn.stack import Stack
from tests.toys import packed

WIDTH, CELLS = 6, 10
ROWS = [[3, 4], [1, 2, 2], [7], [5]]


def layer(spec: LSTM, scale: float = 1.0) -> LSTMLayer:
    torch.manual_seed(0)
    made = spec.build(WIDTH).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, scale)
    return made


def by_torch(ours: LSTMLayer) -> nn.LSTM:
    """torch's module with the same weights."""
    theirs = nn.LSTM(WIDTH, ours.cells, batch_first=True, proj_size=0 if ours.out is None else WIDTH).double()
    state = {"weight_ih_l0": ours.enter, "weight_hh_l0": ours.state, "bias_ih_l0": ours.bias}
    state |= {"bias_hh_l0": torch.zeros_like(ours.bias)} | ({} if ours.out is None else {"weight_hr_l0": ours.out})
    theirs.load_state_dict(state)
    return theirs


def gradients(out: Tensor, module: nn.Module, x: Tensor) -> list[Tensor]:
    weights = torch.sin(torch.arange(out.numel(), dtype=torch.double)).view(out.shape)
    return list(torch.autograd.grad((out * weights).sum(), [x, *module.parameters()]))


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says so of its own module
@pytest.mark.parametrize("spec", [LSTM(), LSTM(CELLS), LSTM(CELLS, 50.0, 50.0), LSTM(None, 50.0)], ids=str)
@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_without_a_clip_that_bites_it_is_torchs(spec, backend):
    ours = layer(spec)
    theirs = by_torch(ours)
    x = torch.randn(3, 9, WIDTH, dtype=torch.double, requires_grad=True)
    out, state = ours(x, None, packed([[9]] * 3, 9, "causal", backend=backend, carry=True))
    expected, (h, c) = theirs(x)
    torch.testing.assert_close(out, expected)
    assert state is not None
    torch.testing.assert_close([state.h, state.c], [h[0], c[0]])
    mine, other = gradients(out, ours, x), dict(theirs.named_parameters())
    their = torch.autograd.grad(
        (expected * torch.sin(torch.arange(out.numel(), dtype=torch.double)).view(out.shape)).sum(),
        [x, other["weight_ih_l0"], other["weight_hh_l0"], other["bias_ih_l0"]]
        + ([other["weight_hr_l0"]] if ours.out is not None else []),
    )
    torch.testing.assert_close(mine, list(their))


@pytest.mark.parametrize("clips", [(None, None), (0.4, None), (None, 0.3), (0.4, 0.3)])
@pytest.mark.parametrize("cells", [None, 3, CELLS])
def test_the_fast_way_is_the_definition_where_clips_bite(cells, clips):
    """Values and gradients, of packed rows that continue from a state."""
    ours = layer(LSTM(cells, *clips))
    x = torch.randn(4, 7, WIDTH, dtype=torch.double, requires_grad=True)
    past = RNNState(0.3 * torch.randn(4, WIDTH).double(), 0.3 * torch.randn(4, ours.cells).double())
    results = []
    for backend in ("dense", "auto"):
        out, state = ours(x, past, packed(ROWS, 7, "causal", backend=backend, carry=True))
        assert state is not None
        results.append([out, state.h, state.c, *gradients(out, ours, x)])
    torch.testing.assert_close(*results)
    with torch.no_grad():
        out, state = ours(x, past, packed(ROWS, 7, "causal", carry=True))
    torch.testing.assert_close([out, state.h, state.c], results[0][:3])
    if clips[1]:
        share = (results[0][0].abs() == clips[1]).double().mean()
        assert 0.1 < share < 0.95, "the clip bites"


def test_gradients_of_the_written_out_recurrence():
    from clozeworks.nn.kernels.recurrence import recur

    torch.manual_seed(1)
    make = lambda *shape: torch.randn(*shape, dtype=torch.double, requires_grad=True)  # noqa: E731
    inputs = (make(6, 12), make(12, 2), make(2, 3), make(3, 2), make(3, 3))
    counts = torch.tensor([3, 2, 1])
    assert torch.autograd.gradcheck(lambda x, r, p, h, c: recur(x, r, p, RNNState(h, c), counts, 0.8, 0.9)[0], inputs)


def test_a_state_carried_on_is_one_long_row():
    for spec in (LSTM(), LSTM(CELLS), LSTM(CELLS, 0.4, 0.3)):
        ours = layer(spec)
        x = torch.randn(2, 12, WIDTH, dtype=torch.double)
        whole, end = ours(x, None, packed([[12]] * 2, 12, "causal", carry=True))
        state, out = None, []
        for part in x.split(5, 1):
            context = packed([[part.shape[1]]] * 2, part.shape[1], "causal", carry=True)
            given, state = ours(part, state, context)
            out.append(given)
        torch.testing.assert_close(torch.cat(out, 1), whole)
        torch.testing.assert_close(dataclasses.astuple(state), dataclasses.astuple(end))


def test_only_the_first_document_of_a_row_continues_from_its_state():
    ours = layer(LSTM(CELLS, 0.4, 0.3))
    x, past = (
        torch.randn(1, 7, WIDTH).double(),
        RNNState(torch.randn(1, WIDTH).double(), torch.randn(1, CELLS).double()),
    )
    out, _ = ours(x, past, packed([[3, 4]], 7, "causal"))
    torch.testing.assert_close(out[:, :3], ours(x[:, :3], past, packed([[3]], 3, "causal"))[0])
    torch.testing.assert_close(out[:, 3:], ours(x[:, 3:], None, packed([[4]], 4, "causal"))[0])


@pytest.mark.parametrize("lengths", [[[7]] * 4, ROWS], ids=["plain", "packed"])
def test_states_are_those_of_the_rows_in_whatever_order_borders_are_reported(lengths):
    ours, x = layer(LSTM(CELLS, 0.4, 0.3)), torch.randn(4, 7, WIDTH, dtype=torch.double)
    context = packed(lengths, 7, "causal", carry=True)
    layout = context.layout
    turned = dataclasses.replace(layout, starts=layout.starts[::-1], lengths=layout.lengths[::-1])
    states = [ours(x, None, context.replace(layout=each, scratch={}))[1] for each in (layout, turned)]
    torch.testing.assert_close(*(dataclasses.astuple(state) for state in states))


def test_the_state_of_a_padded_row_is_that_before_the_padding():
    ours = layer(LSTM(CELLS, 0.4, 0.3))
    x = torch.randn(2, 7, WIDTH, dtype=torch.double)
    _, state = ours(x, None, packed([[7], [4]], 7, "causal", carry=True))
    _, alone = ours(x[1:, :4], None, packed([[4]], 4, "causal", carry=True))
    torch.testing.assert_close(state.h[1:], alone.h)
    torch.testing.assert_close(state.c[1:], alone.c)


def test_borders_are_found_where_nobody_tells_them():
    context = packed(ROWS, 7, "causal")
    ours = layer(LSTM(CELLS))
    x = torch.randn(4, 7, WIDTH, dtype=torch.double)
    outputs = [ours(x, None, each)[0] for each in (context, context.replace(layout=None, scratch={}))]
    assert torch.equal(*outputs)
    assert bool((context.query.document == PADDING).any())


def test_no_loop_over_time_without_a_clip(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a loop")

    monkeypatch.setattr(lstm, "recur", fail)
    x = torch.randn(4, 7, WIDTH, dtype=torch.double)
    for spec in (LSTM(), LSTM(CELLS)):
        layer(spec)(x, None, packed([[7]] * 4, 7, "causal"))
        with torch.no_grad():
            layer(spec)(x, None, packed(ROWS, 7, "causal"))
    with pytest.raises(AssertionError, match="a loop"):
        layer(LSTM(CELLS, 3.0))(x, None, packed(ROWS, 7, "causal"))


def test_a_stack_hands_its_states_on():
    torch.manual_seed(0)
    first = Block(LSTM(CELLS, 3.0, 3.0), None, norm=None, residual=False, dropout=0.0)
    stack = Stack(2, (first, dataclasses.replace(first, residual=True)), memory=1)
    check(stack)
    module = stack.build(WIDTH)
    initialise(module, 0.02, 0)
    x = torch.randn(2, 10, WIDTH)
    whole = module(x, packed([[10]] * 2, 10, "causal"), layers=True)
    half = packed([[5]] * 2, 5, "causal")
    one = module(x[:, :5], half)
    assert one.memory is not None
    assert one.memory.token_info.position.shape == (2, 0)
    two = module(x[:, 5:], half.replace(past=one.memory, scratch={}))
    torch.testing.assert_close(torch.cat([one.last, two.last], 1), whole.last)
    by_hand = module.blocks[0].mixer(x, None, packed([[10]] * 2, 10, "causal"))[0]
    assert torch.equal(whole.layers[1], by_hand), "nothing around the first"
    second = module.blocks[1].mixer(by_hand, None, packed([[10]] * 2, 10, "causal"))[0]
    torch.testing.assert_close(whole.last, by_hand + second)
    assert not any(isinstance(part, nn.LayerNorm) for part in module.modules())


def test_fresh_weights():
    module = LSTM(CELLS, 3.0, 3.0).build(WIDTH)
    initialise(module, 0.02, 0)
    assert sorted(module.bias.tolist()) == [0.0] * 3 * CELLS + [1.0] * CELLS
    assert bool((module.bias[CELLS : 2 * CELLS] == 1).all()), "the forget gate's"
    assert float(module.enter.detach().abs().max()) <= (6 / (4 * CELLS + 2 * WIDTH)) ** 0.5
    assert float(module.out.detach().abs().min()) > 0


@pytest.mark.parametrize("part", [LSTM(0), LSTM(4, clip=0.0), LSTM(4, clip_out=-1.0)])
def test_what_cannot_be_is_refused(part):
    with pytest.raises(RecipeError):
        check(part)


def test_what_reads_both_ways_is_refused():
    with pytest.raises(ValueError, match="one way"):
        LSTM().build(WIDTH)(torch.randn(1, 3, WIDTH), None, packed([[3]], 3))
    assert isinstance(packed([[3]], 3, "causal"), Context)
