"""The cells against torch's modules, one step at a time and many at once."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from clozeworks.nn.cell import CellLayer, run, step_by_step

KINDS = {"gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = [5, 3, 3, 1]


def twin(kind: str) -> tuple[CellLayer, nn.RNNBase]:
    torch.manual_seed(0)
    cell, theirs = CellLayer(kind, 3, 4), KINDS[kind](3, 4)
    with torch.no_grad():
        for mine, name in ((cell.inner, "ih"), (cell.hidden, "hh")):
            mine.weight.copy_(getattr(theirs, f"weight_{name}_l0"))
            mine.bias.copy_(getattr(theirs, f"bias_{name}_l0"))
    return cell, theirs


@pytest.mark.parametrize("how", ["at once", "step by step"])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_different_lengths_are_those_of_torch(kind: str, how: str):
    cell, theirs = twin(kind)
    rows = [torch.randn(length, 3) for length in LENGTHS]
    packed = pack_sequence(rows)
    expected, last = theirs(packed)
    state = cell.zeros(packed.data, len(rows))
    if how == "at once":
        out, (actual,) = run((cell,), packed.data, packed.batch_sizes, (state,))
    else:
        out, actual = step_by_step(cell.step, cell.inner(packed.data), packed.batch_sizes, state)
    torch.testing.assert_close(out, expected.data)
    torch.testing.assert_close(actual.h, (last[0] if kind == "lstm" else last)[0])
    if kind == "lstm":
        torch.testing.assert_close(actual.c, last[1][0])


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_at_once_are_one_way_and_the_other(kind: str):
    cells = [twin(kind)[0], twin(kind)[0]]
    nn.init.normal_(cells[1].hidden.weight)
    packed = pack_sequence([torch.randn(length, 3) for length in LENGTHS])
    states = [cell.zeros(packed.data, len(LENGTHS)) for cell in cells]
    out, _ = run(cells, packed.data, packed.batch_sizes, states)
    ways = [
        step_by_step(cell.step, cell.inner(packed.data), packed.batch_sizes, state, back)[0]
        for cell, state, back in zip(cells, states, (False, True), strict=True)
    ]
    torch.testing.assert_close(out, torch.cat(ways, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_in_parts_is_their_sum(kind: str):
    cell = twin(kind)[0]
    x = torch.randn(7, 3)
    first, second = cell.reads(2, 1)
    assert first.is_contiguous()
    assert second.is_contiguous()
    torch.testing.assert_close(x[:, :2] @ first.T + x[:, 2:] @ second.T + cell.inner.bias, cell.inner(x))
