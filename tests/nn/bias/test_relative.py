"""Relative positions beside the formula, written out pair by pair."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from clozeworks.batch import Context, Kind, Side, visible
from clozeworks.nn.attention import Attention
from clozeworks.nn.bias.relative import Relative

WIDTH, HEADS = 24, 3


def layer(**fields):
    torch.manual_seed(0)
    mixer = Attention(HEADS, bias=Relative(**fields), affine=False).build(WIDTH)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return mixer


def wave(distance: float) -> Tensor:
    angles = [distance / 10_000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])


def by_hand(mixer, x: Tensor, memory: Tensor, context: Context, clamp: int | None = None) -> Tensor:
    """Attention pair by pair: four products of vectors, and two with segments."""
    bias, size = mixer.bias, WIDTH // HEADS
    cut = lambda y: y.view(HEADS, size)  # noqa: E731
    seen, out = visible(context.query, context.memory), torch.zeros_like(x)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            scores = torch.full((HEADS, memory.shape[1]), -math.inf)
            q = cut(mixer.query.weight @ x[b, i])
            for j in range(memory.shape[1]):
                if not seen[b, i, j]:
                    continue
                distance = int(context.query.position[b, i] - context.memory.position[b, j])
                if clamp is not None:
                    distance = max(-clamp, min(clamp, distance))
                k, r = cut(mixer.key.weight @ memory[b, j]), cut(bias.position.weight @ wave(distance))
                total = (q * k + q * r + bias.u * k + bias.v * r).sum(-1)
                if bias.w is not None:
                    other = int(context.query.segment[b, i] != context.memory.segment[b, j])
                    total = total + ((q + bias.w) * bias.segment[other]).sum(-1)
                scores[:, j] = total / math.sqrt(size)
            if seen[b, i].any():
                v = (memory[b] @ mixer.value.weight.T).unflatten(-1, (HEADS, size))
                mixed = torch.einsum("hm,mhd->hd", scores.softmax(-1), v)
                out[b, i] = mixer.out.weight @ mixed.flatten()
    return out


def remembering(kind: Kind, length: int, memory: int, rows: int = 2) -> Context:
    """Rows that go on after `memory` older ones; the second half of them is read backwards."""
    backward = torch.arange(rows) >= rows // 2
    position = torch.arange(-memory, length).expand(rows, -1)
    sign = torch.where(backward, -1, 1)[:, None]
    side = Side.make(position, torch.zeros_like(position), kind)
    side = dataclasses.replace(side, position=position * sign, segment=(position > length // 2).long())
    return Context(side.tail(length), side, kind, memory, backward)


@pytest.mark.parametrize("backend", ["dense", "auto"])
@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("fields", [{}, {"segments": True}, {"clamp": 3, "segments": True}], ids=str)
@pytest.mark.parametrize(("length", "memory"), [(1, 0), (5, 0), (5, 4), (3, 7), (1, 6)])
def test_scores_are_the_four_terms(length, memory, fields, kind, backend):
    mixer, context = layer(**fields), remembering(kind, length, memory)
    x = torch.randn(2, memory + length, WIDTH)
    expected = by_hand(mixer, x[:, memory:], x, context, fields.get("clamp"))
    for offset in (memory, None):  # by shifting, and by position
        view = dataclasses.replace(context, offset=offset, backend=backend, scratch={})
        out, _ = mixer(x[:, memory:], x, view)
        torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
