"""Three views of a text side by side."""

import dataclasses

import numpy as np
import pytest
import torch

from clozeworks.core.batch import Hidden
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import RaggedBatch
from clozeworks.core.spec import check
from clozeworks.data.batches.labelled import Labelled
from clozeworks.tasks.summary import COMMON, Summary
from tests.toys import batch_of, packed

WIDTH, VOCAB = 5, 9
ROWS = [[3, 4], [1, 2, 2], [7], [5]]
FIRSTS, LENGTHS = [0, 3, 7, 8, 10, 14, 21], [3, 4, 1, 2, 2, 7, 5]


def read() -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    x = torch.randn(4, 7, WIDTH, requires_grad=True)
    flat = x.flatten(0, 1)
    return x, [flat[start : start + length] for start, length in zip(FIRSTS, LENGTHS, strict=True)]


def batch():
    made = batch_of(packed(ROWS, 7, "causal"), torch.arange(28).view(4, 7) % VOCAB)
    made.firsts = torch.tensor(FIRSTS)
    made.lasts = made.firsts + torch.tensor(LENGTHS) - 1
    return made


def test_the_last_the_largest_and_the_mean():
    x, texts = read()
    expected = torch.stack([torch.cat([text[-1], text.amax(0), text.mean(0)]) for text in texts])
    actual = Summary("concat", None).build(WIDTH, VOCAB)(x, Hidden(x), batch())
    torch.testing.assert_close(actual, expected)
    slopes = torch.randn_like(actual)
    torch.testing.assert_close(*(torch.autograd.grad((each * slopes).sum(), x)[0] for each in (actual, expected)))
    assert Summary("concat", None).out_width(WIDTH) == 3 * WIDTH
    assert Summary("concat", None).read_positions(batch()) is None


def test_a_layer_of_its_own_reads_all_three():
    x, texts = read()
    spec = Summary("concat", "own", "relu", early=True, width=4)
    layer = spec.build(WIDTH, VOCAB)
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


def weighted():
    layer = Summary("weighted", None, dropout=0.0).build(WIDTH, VOCAB)
    assert layer.weights is not None
    return layer, layer.weights.weight


def test_a_mean_in_which_every_token_counts_in_its_own_way():
    x, texts = read()
    layer, weight = weighted()
    torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    counts = batch().tokens.flatten()
    own = [weight[counts[start : start + len(text)]].exp()[:, None] for start, text in zip(FIRSTS, texts, strict=True)]
    expected = torch.stack([(text * each).sum(0) / each.sum() for text, each in zip(texts, own, strict=True)])
    actual = layer(x, Hidden(x), batch())
    torch.testing.assert_close(actual, expected)
    slopes = torch.randn_like(actual)
    for given in (x, weight):
        torch.testing.assert_close(*(torch.autograd.grad((e * slopes).sum(), given, retain_graph=True)[0]
                                     for e in (actual, expected)))  # fmt: skip
    torch.nn.init.zeros_(weight)
    torch.testing.assert_close(layer(x, Hidden(x), batch()), torch.stack([text.mean(0) for text in texts]))


def test_what_is_frequent_in_the_rows_counts_less():
    layer, weight = weighted()
    tokens = np.repeat(np.arange(4), [600, 300, 97, 3]).astype(np.int32)
    none, no = np.zeros(1000, np.int32), np.zeros(1000, bool)
    examples = RaggedBatch(tokens, np.array([0, 500, 1000]), none.astype(np.int8), no, no, none)
    assert layer.weights is not None
    layer.weights.begin_rows(Labelled.one_each(examples))
    shares = torch.tensor([0.6, 0.3, 0.097, 0.003, 0, 0, 0, 0, 0])
    torch.testing.assert_close(weight.exp(), COMMON / (COMMON + shares))
    assert weight[3].exp().item() == pytest.approx(0.5)
