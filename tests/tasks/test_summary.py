"""Three views of a text side by side."""

import dataclasses

import pytest
import torch

from clozeworks.core.batch import Hidden
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.tasks.summary import Summary
from tests.toys import batch_of, packed

WIDTH = 5
ROWS = [[3, 4], [1, 2, 2], [7], [5]]
FIRSTS, LENGTHS = [0, 3, 7, 8, 10, 14, 21], [3, 4, 1, 2, 2, 7, 5]


def read() -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    x = torch.randn(4, 7, WIDTH, requires_grad=True)
    flat = x.flatten(0, 1)
    return x, [flat[start : start + length] for start, length in zip(FIRSTS, LENGTHS, strict=True)]


def batch():
    made = batch_of(packed(ROWS, 7, "causal"), torch.zeros(4, 7, dtype=torch.long))
    made.firsts = torch.tensor(FIRSTS)
    made.lasts = made.firsts + torch.tensor(LENGTHS) - 1
    return made


def test_the_last_the_largest_and_the_mean():
    x, texts = read()
    expected = torch.stack([torch.cat([text[-1], text.amax(0), text.mean(0)]) for text in texts])
    actual = Summary("concat", None).build(WIDTH)(x, Hidden(x), batch())
    torch.testing.assert_close(actual, expected)
    slopes = torch.randn_like(actual)
    torch.testing.assert_close(*(torch.autograd.grad((each * slopes).sum(), x)[0] for each in (actual, expected)))
    assert Summary("concat", None).out_width(WIDTH) == 3 * WIDTH
    assert Summary("concat", None).read_positions(batch()) is None


def test_a_layer_of_its_own_reads_all_three():
    x, texts = read()
    spec = Summary("concat", "own", "relu", early=True, width=4)
    layer = spec.build(WIDTH)
    assert layer.dense is not None
    assert layer.dense.weight.shape == (4, 3 * WIDTH)
    pooled = torch.stack([torch.cat([text[-1], text.amax(0), text.mean(0)]) for text in texts])
    torch.testing.assert_close(layer(x, Hidden(x), batch()), torch.relu(layer.dense(pooled)))
    dropped = layer(x, Hidden(x, key=DropoutKey.make(1, rows=range(4))), batch())
    assert not torch.equal(dropped, torch.relu(layer.dense(pooled)))
    assert dropped.shape == (7, spec.out_width(WIDTH))


def test_the_pooler_reads_one_token():
    with pytest.raises(RecipeError, match="the pooler reads the first token"):
        check(Summary("concat"))
    check(dataclasses.replace(Summary("concat"), dense="own"))
