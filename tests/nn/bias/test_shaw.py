"""Vectors of distances beside keys and values, written out pair by pair."""

import dataclasses
import math

import pytest
import torch

from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import visible
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.mixers.attention import Attention
from tests.nn.bias.test_relative import HEADS, WIDTH, remembering


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize(("length", "memory"), [(1, 0), (7, 0), (5, 4)])
def test_keys_and_values_know_their_distance(length, memory, kind):
    torch.manual_seed(0)
    mixer, size, reach = Attention(HEADS, bias=Shaw(2), affine=False).build(WIDTH), WIDTH // HEADS, 2
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    context = remembering(kind, length, memory)
    x, seen = torch.randn(2, memory + length, WIDTH), visible(context.query, context.memory)
    out = mixer(x[:, memory:], x, context)[0]
    irregular = context.replace(offset=None, scratch={})
    assert torch.equal(mixer(x[:, memory:], x, irregular)[0], out)
    q, k, v = (each(x).unflatten(-1, (HEADS, size)) for each in (mixer.query, mixer.key, mixer.value))
    for b in range(2):
        for i in range(length):
            mixed = torch.zeros(HEADS, size)
            for h in range(HEADS):
                results = [j for j in range(memory + length) if seen[b, i, j]]
                far = [int(context.memory.position[b, j] - context.query.position[b, i]) for j in results]
                rows = [max(-reach, min(reach, d)) + reach for d in far]
                scores = [q[b, memory + i, h] @ (k[b, j, h] + mixer.bias.keys[row]) / math.sqrt(size)
                          for j, row in zip(results, rows, strict=True)]  # fmt: skip
                for weight, j, row in zip(torch.stack(scores).softmax(0), results, rows, strict=True):
                    mixed[h] += weight * (v[b, j, h] + mixer.bias.values[row])
            torch.testing.assert_close(out[b, i], mixer.out(mixed.flatten()), atol=2e-6, rtol=1e-5)


def test_the_tables_serve_all_heads():
    layer = Attention(4, bias=Shaw()).build(32).bias
    assert layer is not None
    assert {name: tuple(table.shape) for name, table in layer.named_parameters()} == {
        "keys": (33, 8),
        "values": (33, 8),
    }


def test_a_reach_of_nothing_is_refused():
    with pytest.raises(RecipeError, match=r"bias\.reach = 0: 1 or more is needed"):
        check(Shaw(0), "bias")


def test_far_tokens_are_as_far_as_the_reach():
    mixer, context = Attention(HEADS, bias=Shaw(1)).build(WIDTH), remembering("full", 4, 0, rows=1)
    context = context.replace(backward=None)
    far = dataclasses.replace(context.query, position=context.query.position * 100)
    x = torch.randn(1, 4, WIDTH)
    assert torch.equal(mixer(x, None, context)[0], mixer(x, None, Context.make(far, far, "full", None))[0])
