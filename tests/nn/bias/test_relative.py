"""Relative positions beside the formula, written out pair by pair."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import Kind, TokenInfo, visible
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.mixers.attention import Attention
from tests.toys import packed

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
    """Rows that continue after `memory` older ones; the second half of them is read backwards."""
    backward = torch.arange(rows) >= rows // 2
    position = torch.arange(-memory, length).expand(rows, -1)
    sign = torch.where(backward, -1, 1)[:, None]
    side = TokenInfo.make(position, torch.zeros_like(position), kind)
    side = dataclasses.replace(side, position=position * sign, segment=(position > length // 2).long())
    return Context.make(side.tail(length), side, kind, memory, backward=backward)


@pytest.mark.parametrize("backend", ["dense", "auto"])
@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("fields", [{}, {"segments": True}, {"clamp": 3, "segments": True}], ids=str)
@pytest.mark.parametrize(("length", "memory"), [(1, 0), (5, 0), (5, 4), (3, 7), (1, 6)])
def test_scores_are_the_four_terms(length, memory, fields, kind, backend):
    mixer, context = layer(**fields), remembering(kind, length, memory)
    x = torch.randn(2, memory + length, WIDTH)
    expected = by_hand(mixer, x[:, memory:], x, context, fields.get("clamp"))
    for offset in (memory, None):  # by shifting, and by position
        view = context.replace(offset=offset, backend=backend, scratch={})
        out, _ = mixer(x[:, memory:], x, view)
        torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("fields", [{}, {"segments": True, "dropout": 0.2}], ids=str)
@pytest.mark.parametrize(("length", "memory"), [(1, 0), (5, 0), (5, 4), (3, 7)])
@pytest.mark.parametrize("backward", [False, True])
def test_the_fast_path_has_the_gradients_of_the_definition(length, memory, fields, kind, rate, backward):
    """And drops the same weights."""
    mixer, context = layer(**fields).double(), remembering(kind, length, memory)
    mixer.dropout = rate
    if not backward:
        context = context.replace(backward=None)
    x = torch.randn(2, memory + length, WIDTH, dtype=torch.double, requires_grad=True)
    weight = torch.randn(2, length, WIDTH)
    results = []
    for backend in ("dense", "auto"):
        view = context.replace(backend=backend, scratch={}, key=DropoutKey.make(1, rows=range(2)))
        out, _ = mixer(x[:, memory:], x, view)
        results.append([out, *torch.autograd.grad((out * weight).sum(), [x, *mixer.parameters()])])
    for expected, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-10, rtol=1e-7)


def test_a_query_that_sees_nothing_gives_nothing():
    mixer = layer()
    position = torch.arange(4)[None]
    rank = torch.tensor([[0, 3, 1, 2]])
    memory = TokenInfo(position, torch.zeros_like(position), rank, rank)
    context = Context.make(dataclasses.replace(memory, sees=rank - 1), memory, "order")
    x = torch.randn(1, 4, WIDTH, requires_grad=True)
    out, _ = mixer(x, x, context)
    assert torch.equal(out[0, 0], torch.zeros(WIDTH))
    assert out[0, 1].abs().sum() > 0
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("backend", ["dense", "auto"])
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_positions_are_seen_as_distances_alone(kind, backend):
    mixer, context = layer(clamp=4), packed([[3, 4], [6]], 8, kind, backend=backend)
    x = torch.randn(2, 8, WIDTH)
    far = context.query.each(lambda v: v)
    far = dataclasses.replace(far, position=far.position + 1000)
    for offset in (0, None):
        near, moved = (context.replace(offset=offset, scratch={}, query=side, memory=side)
                       for side in (context.query, far))  # fmt: skip
        torch.testing.assert_close(mixer(x, None, moved)[0], mixer(x, None, near)[0])


def test_only_the_sign_differs_for_rows_that_are_read_backwards():
    mixer, context = layer(), packed([[6]], 6)
    x = torch.randn(1, 6, WIDTH)
    turned = context.replace(backward=torch.tensor([True]), scratch={})
    side = dataclasses.replace(context.query, position=-context.query.position)
    turned = turned.replace(query=side, memory=side)
    torch.testing.assert_close(mixer(x.flip(1), None, turned)[0].flip(1), mixer(x, None, context)[0])


def test_rows_of_memory_are_of_the_first_segment():
    mixer, (length, memory) = layer(segments=True), (4, 3)
    segment = torch.tensor([[0, 0, 1, 1]])
    position = torch.arange(memory + length)[None]
    side = TokenInfo.make(position, torch.zeros_like(position), "causal")
    asking = dataclasses.replace(side.tail(length), segment=segment)
    known = dataclasses.replace(side, segment=torch.cat([torch.zeros(1, memory, dtype=torch.long), segment], 1))
    x = torch.randn(1, memory + length, WIDTH)
    given, untold = (mixer(x[:, memory:], x, Context.make(asking, m, "causal", memory))[0] for m in (known, side))
    assert torch.equal(given, untold)
    wrong = dataclasses.replace(known, segment=torch.ones_like(position))
    assert not torch.allclose(mixer(x[:, memory:], x, Context.make(asking, wrong, "causal", memory))[0], given)
    assert known.earlier(4).segment.tolist() == [[0] * (memory + length)]


def test_dropout_of_distances_is_that_of_the_step_in_any_piece_of_it():
    mixer = layer(dropout=0.5)
    x = torch.randn(4, 6, WIDTH)

    def run(rows: range) -> Tensor:
        key = DropoutKey.make(3, 1, rows=rows).at(5)
        return mixer(x[rows.start : rows.stop], None, packed([[6]] * len(rows), 6, key=key))[0]

    whole = run(range(4))
    torch.testing.assert_close(torch.cat([run(range(1)), run(range(1, 4))]), whole)
    assert not torch.allclose(whole, mixer(x, None, packed([[6]] * 4, 6))[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clamp": 0}, r"bias\.clamp = 0: 1 or more is needed; None is usual"),
        ({"dropout": 1.0}, r"bias\.dropout = 1\.0: a number in \[0, 1\) is needed; 0 is usual"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(RecipeError, match=message):
        check(Relative(**fields), "bias")
