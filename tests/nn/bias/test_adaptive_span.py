"""Spans that are learned: the weights and gradients of the published modules, and who may be seen."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.window import Window
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.recipes import recipe
from tests.toys import packed

WIDTH, HEADS, LIMIT, RAMP, LENGTH = 8, 2, 12, 3, 4
# By shares: the first number of each output, their weighted sum, its gradient by each share, the norms of its gradients
# by the vectors of distances and by all rows, the penalty and the average span. From the authors' modules, float64.
PUBLISHED = {
    (0.0, 0.0): (
        [0.222578, -0.071588, 0.127593, -0.023594], 0.069748, [-1.096406, 1.820335],
        [0.285941, 0.392568, 0.106684, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1.780012, 0.0, 3,
    ),
    (0.25, 0.6): (
        [0.202503, -0.046051, 0.106225, 0.008501], 0.140864, [-0.052216, -0.11932],
        [0.138536, 0.164184, 0.153812, 0.160334, 0.106568, 0.073611, 0.028109, 0.031628, 0.00792, 0.006197, 0.000457,
         0],
        1.406289, 5.1, 9,
    ),
    (1.0, 0.1): (
        [0.053416, 0.056496, 0.025027, 0.046162], 0.051916, [0.0, -0.703952],
        [0.157297, 0.194899, 0.131243, 0.102414, 0.054035, 0.042785, 0.037678, 0.033904, 0.019901, 0.02156, 0.000328,
         0.005992],
        1.783863, 6.6, 10,
    ),
}  # fmt: skip


def waves(*shape: int, rate: float) -> Tensor:
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * rate + rate).view(shape)


def published() -> Any:
    mixer = Attention(HEADS, bias=AdaptiveSpan(LIMIT, DistanceTable(LIMIT), RAMP), affine=False).build(WIDTH).double()
    with torch.no_grad():
        for number, part in enumerate((mixer.query, mixer.key, mixer.value, mixer.out)):
            part.weight.copy_(waves(WIDTH, WIDTH, rate=1.1 + 0.3 * number))
        mixer.bias.bias.table.copy_(waves(LIMIT, WIDTH // HEADS, rate=0.7))
    return mixer


def after(older: int, length: int = LENGTH, **more: Any) -> Context:
    whole = packed([[older + length]], older + length, "causal").query
    return Context.make(whole.tail(length), whole, "causal", offset=older, **more)


@pytest.mark.parametrize("backend", ["dense", "auto", "sdpa"])
@pytest.mark.parametrize("shares", PUBLISHED)
def test_outputs_and_gradients_are_those_of_the_authors(shares, backend):
    first, weighted, by_share, by_table, by_rows, penalty, average = PUBLISHED[shares]
    mixer = published()
    with torch.no_grad():
        mixer.bias.share.copy_(torch.tensor(shares))
    x = waves(1, LIMIT + LENGTH, WIDTH, rate=0.37).requires_grad_()
    out, _ = mixer(x[:, LIMIT:], x, after(LIMIT, backend=backend))
    loss = (out * waves(1, LENGTH, WIDTH, rate=0.9)).sum()
    rows, table, share = torch.autograd.grad(loss, [x, mixer.bias.bias.table, mixer.bias.share])
    near = {"atol": 3e-6, "rtol": 0}
    torch.testing.assert_close(out[0, :, 0].tolist(), first, **near)
    torch.testing.assert_close(loss.item(), weighted, **near)
    torch.testing.assert_close(share.tolist(), by_share, **near)
    torch.testing.assert_close(table.norm(dim=1).tolist(), [float(each) for each in by_table], **near)
    torch.testing.assert_close(rows.norm().item(), by_rows, **near)
    penalties = mixer.bias.penalty()
    assert penalties["span"].item() == pytest.approx(penalty, rel=1e-6)
    assert penalties["average_span"].item() == average


@pytest.mark.parametrize("inner", [DistanceTable(9), Relative()])
def test_a_token_sees_what_its_longest_head_reaches(inner):
    torch.manual_seed(0)
    mixer: Any = Attention(2, bias=AdaptiveSpan(9, inner, ramp=2), affine=False).build(WIDTH)
    torch.nn.init.normal_(mixer.bias.bias.table if isinstance(inner, DistanceTable) else mixer.bias.bias.u)
    for z, reached in ((0.0, 2), (3 / 9, 5), (1.0, 9)):
        with torch.no_grad():
            mixer.bias.share.copy_(torch.tensor([0.0, z]))
        x = torch.randn(1, 12, WIDTH, requires_grad=True)
        out, _ = mixer(x, None, packed([[12]], 12, "causal"))
        (gradient,) = torch.autograd.grad((out[0, -1] * torch.randn(WIDTH)).sum(), x)
        touched = (gradient[0].abs().sum(-1) > 1e-20).tolist()  # one more key may be raised from nothing
        assert touched[:-1] == [distance <= reached for distance in range(11, 0, -1)]


def test_the_first_token_of_a_text_gets_nothing():
    mixer = published().float()
    out, _ = mixer(torch.randn(1, 7, WIDTH), None, packed([[3, 4]], 7, "causal"))
    assert not bool(out[0, [0, 3]].any())
    assert bool(out[0, [1, 2, 4, 5, 6]].any(-1).all())


def test_shares_stay_within_bounds_and_the_reach_follows_whoever_writes_them():
    bias = AdaptiveSpan(1000, DistanceTable(1000), ramp=32).build(WIDTH, HEADS, 4)
    assert bias.furthest() == 64
    with torch.no_grad():
        bias.share.add_(0.5)
    assert bias.furthest() == 576  # 500 + 32 + 1, to the next 64
    with torch.no_grad():
        bias.share.copy_(torch.tensor([-1.0, 3.0]))
    assert bias.furthest() == 1000
    assert bias.spans().tolist() == [0.0, 1000.0]
    most = bias.constrain()
    assert most is not None
    assert most.item() == 1.0
    assert bias.share.tolist() == [0.0, 1.0]
    bias.know(most.item())
    assert bias.furthest() == 1000


def test_fresh_spans_begin_at_init_and_distances_at_unit_size():
    bias = AdaptiveSpan(4000, DistanceTable(4000), init=0.25).build(WIDTH, HEADS, 4)
    generator = torch.Generator().manual_seed(0)
    bias.begin("share", bias.share.detach().zero_(), 0.02, generator)
    assert bias.share.tolist() == [0.25, 0.25]
    inner: Any = bias.bias
    inner.begin("table", inner.table.detach(), 0.02, generator)
    assert inner.table.std().item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("field", "value"), [("limit", 0), ("ramp", 0), ("init", 1.5)])
def test_refused_by_field(field, value):
    bias = AdaptiveSpan(64, DistanceTable(64))
    setattr(bias, field, value)
    with pytest.raises(RecipeError, match=rf"x\.{field} = {value}"):
        check(bias, "x")


def test_refused_where_it_makes_no_sense():
    with pytest.raises(RecipeError, match="says already how far back"):
        check(Attention(2, bias=AdaptiveSpan(64, Relative()), window=Window(8)), "x")
    r = recipe("adaptive_span_mini")
    r.encoder.stack.memory = 0
    r.objective.corruption = MaskTokens()
    with pytest.raises(RecipeError, match="full visibility"):
        check(r, r.name)
    xlnet = recipe("xlnet_mini")
    xlnet.encoder.stack.block_at(0).mixer = Attention(4, bias=AdaptiveSpan(64, Relative()))
    with pytest.raises(RecipeError, match="order"):
        check(xlnet, "x")
    xl = recipe("transformer_xl_mini")
    xl.objective.losses = recipe("adaptive_span_mini").objective.losses
    with pytest.raises(RecipeError, match="no span is learned"):
        check(xl, "x")


def test_irregular_rows_go_by_position():
    """Rows of other lengths behind one another, as ragged texts in a cache: what is between them is not there."""
    mixer = published().float()
    x = torch.randn(1, 9, WIDTH)
    expected, _ = mixer(x[:, 5:], x, after(5))
    order = torch.tensor([0, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8])
    whole = after(5).memory.take(order[None])
    document = whole.document.clone()
    document[0, 5:7] = -2
    memory = dataclasses.replace(whole, document=document)
    out, _ = mixer(x[:, 5:], x[:, order], Context.make(after(5).query, memory, "causal", offset=None))
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
