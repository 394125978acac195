"""Convolution as a mixer: the authors' numbers, what a kernel reaches, and what it may not."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.cache import ConvCache
from clozeworks.core.context import Context, Source
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import PADDING, visible
from clozeworks.model import initialise
from clozeworks.nn.mixers.lightconv import LightConv, LightConvLayer
from tests.toys import packed

WIDTH, GROUPS = 12, 3

# What the authors' modules give for such waves, kernel 3, two groups of two channels; the gate where it is dynamic.
PUBLISHED = {
    (True, "full"): [
        [-0.5891, -3.49861, 2.06123, -4.34314],
        [-2.82718, -1.41191, 0.36705, -3.23725],
        [-2.74107, -0.04723, -2.29073, 0.40651],
        [-0.70037, -1.70259, -1.212, 0.02906],
        [2.43237, -4.45116, 0.83479, -1.07943],
    ],
    (True, "causal"): [
        [-1.20785, -1.4632, -1.15564, -0.31654],
        [-3.23908, 0.03595, -1.94948, -0.31975],
        [-3.30537, -0.83427, -0.24329, -2.66474],
        [-1.86746, -0.92501, -1.51021, -0.18655],
        [-0.89313, -1.48553, -1.42826, 0.21954],
    ],
    (False, "full"): [
        [-0.00592, -4.05309, 2.52294, -4.65873],
        [0.86791, -4.31287, 2.13865, -3.67478],
        [1.71526, -5.58699, 3.69232, -5.32845],
        [-0.62091, -2.79052, 0.7587, -2.59668],
        [0.09302, -2.84189, 0.14156, -1.38235],
    ],
    (False, "causal"): [
        [1.38595, -4.72514, 2.3975, -3.7503],
        [-0.00592, -4.05309, 2.52294, -4.65873],
        [0.86791, -4.31287, 2.13865, -3.67478],
        [1.71526, -5.58699, 3.69232, -5.32845],
        [-0.62091, -2.79052, 0.7587, -2.59668],
    ],
}


def waves(*shape: int, start: int) -> Tensor:
    return 1.5 * torch.sin(torch.arange(math.prod(shape), dtype=torch.double) * 0.7 + start).view(shape).float()


@pytest.mark.parametrize(("dynamic", "kind"), PUBLISHED)
def test_the_authors_numbers(dynamic, kind):
    mixer = LightConv(2, 3, dynamic=dynamic, gate=dynamic).build(4)
    parameters = (mixer.inner.weight, mixer.inner.bias, mixer.out.weight, mixer.out.bias, *mixer.weights.parameters())
    with torch.no_grad():
        for start, parameter in enumerate(parameters, 1):
            parameter.copy_(waves(*parameter.shape, start=start))
        out, _ = mixer(waves(1, 5, 4, start=6), None, packed([[5]], 5, kind))
    torch.testing.assert_close(out[0], torch.tensor(PUBLISHED[dynamic, kind]), atol=1e-5, rtol=0)


def plain(kernel: int, dynamic: bool = False, rate: float = 0.0) -> LightConvLayer:
    """One that neither projects nor gates."""
    mixer = LightConv(GROUPS, kernel, rate, dynamic, gate=False).build(WIDTH)
    with torch.no_grad():
        for linear in (mixer.inner, mixer.out):
            linear.weight.copy_(torch.eye(WIDTH))
            linear.bias.zero_()
        for parameter in mixer.weights.parameters():
            parameter.normal_(0, 0.3)
    return mixer


@pytest.mark.parametrize("kernel", [1, 3, 4, 15])
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_it_is_a_depthwise_convolution_whose_weights_at_the_edges_are_as_elsewhere(kernel, kind):
    torch.manual_seed(0)
    mixer, x = plain(kernel), torch.randn(2, 9, WIDTH)
    out, _ = mixer(x, None, packed([[9], [9]], 9, kind))
    left = kernel - 1 if kind == "causal" else (kernel - 1) // 2
    weights = mixer.weights.kernel.softmax(-1).repeat_interleave(WIDTH // GROUPS, 0)[:, None]
    expected = F.conv1d(F.pad(x.transpose(1, 2), (left, kernel - 1 - left)), weights, groups=WIDTH).transpose(1, 2)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(("kind", "own"), [("full", 3), ("causal", 6)])
def test_a_kernel_that_looks_at_its_own_token_changes_nothing(kind, own):
    mixer, x = plain(7), torch.randn(2, 9, WIDTH)
    torch.nn.init.zeros_(mixer.weights.kernel).data[:, own] = 200.0
    torch.testing.assert_close(mixer(x, None, packed([[4, 5], [3]], 9, kind))[0], x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["dense", "auto"])
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_a_token_is_touched_by_what_it_sees_within_the_kernel_and_by_nothing_else(kind, backend, dynamic):
    torch.manual_seed(0)
    mixer = LightConv(GROUPS, 4, dynamic=dynamic).build(WIDTH)
    context = packed([[5, 3], [7]], 9, kind, backend=backend)
    x, weights = torch.randn(2, 9, WIDTH, requires_grad=True), torch.randn(WIDTH)
    out, _ = mixer(x, None, context)
    distance = context.query.position[:, :, None] - context.query.position[:, None, :]
    near = (distance <= 3) & (distance >= 0) if kind == "causal" else (distance <= 1) & (distance >= -2)
    expected = visible(context.query, context.memory) & near
    for row in range(2):
        for place in range(9):
            (gradient,) = torch.autograd.grad((out[row, place] * weights).sum(), x, retain_graph=True)
            touched = gradient.abs().sum(-1) > 0
            assert not bool(touched[1 - row].any())
            assert touched[row].tolist() == expected[row, place].tolist()


@pytest.mark.parametrize("kernel", [1, 2, 5])
def test_what_is_carried_is_no_longer_than_the_kernel(kernel):
    mixer, x = LightConv(GROUPS, kernel, dynamic=True).build(WIDTH), torch.randn(2, 20, WIDTH)
    whole = packed([[20], [20]], 20, "causal")
    expected, _ = mixer(x, None, whole)
    carry = None
    for at in range(20):
        query, memory = (whole.query.each(lambda v, n=n, at=at: v[:, n : at + 1]) for n in (at, 0))
        carry = mixer.extend(carry, x[:, at : at + 1])
        out, _ = mixer(x[:, at : at + 1], carry, Context.make(query, memory, "causal", offset=at))
        torch.testing.assert_close(out[:, 0], expected[:, at])
    assert isinstance(carry, ConvCache)
    assert carry.last.shape[1] == kernel
    assert torch.equal(carry.rows(torch.tensor([1, 1, 0])).last[2], carry.last[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_dropped_weights_are_keyed_by_row_and_right_on_average(dynamic):
    torch.manual_seed(0)
    mixer, x = plain(5, dynamic, rate=0.3), torch.randn(2, 9, WIDTH)
    whole, _ = mixer(x, None, packed([[9], [9]], 9))
    total, out = torch.zeros_like(whole), whole
    for step in range(200):
        key = DropoutKey.make(step, rows=range(2))
        out, _ = mixer(x, None, packed([[9], [9]], 9, key=key))
        total += out
    torch.testing.assert_close(total / 200, whole, atol=0.2, rtol=0)
    other = packed([[9], [9]], 9, key=DropoutKey.make(199, rows=range(1, 3)))
    assert torch.equal(mixer(x[[1, 0]], None, other)[0][0], out[1])  # the same row beside another


def test_a_kernel_for_all_places_is_dropped_for_a_whole_row():
    mixer = plain(5, rate=0.5)
    weights = mixer.weights(torch.zeros(3, 9, WIDTH), DropoutKey.make(0, rows=range(3)))
    assert bool((weights == weights[:, :1]).all())
    assert not torch.equal(weights[0] == 0, weights[1] == 0)


def test_a_fresh_kernel_is_drawn_as_the_authors_draw_it():
    mixer = LightConv(4, 20).build(24)
    initialise(mixer, 0.02, seed=0)
    bound = math.sqrt(6 / (20 + 80))
    assert 0.9 * bound < float(mixer.weights.kernel.detach().abs().max()) <= bound


def test_padding_anywhere_in_rows_of_which_nothing_is_promised():
    mixer, x = LightConv(GROUPS, 3, dynamic=True).build(WIDTH), torch.randn(1, 6, WIDTH)
    whole = packed([[6]], 6)
    holes = whole.query.each(lambda value: value.clone())
    holes.document[0, [0, 5]] = PADDING  # as keys, never as queries
    out, _ = mixer(x, None, Context.make(whole.query, holes, "full", offset=None))
    torch.testing.assert_close(out[:, 1:5], mixer(x[:, 1:5], None, packed([[4]], 4))[0])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (LightConv(0, 3), r"mixer\.groups = 0: 1 or more"),
        (LightConv(4, 0), r"mixer\.kernel = 0: 1 or more"),
        (LightConv(4, 3, dropout=1.0), r"mixer\.dropout = 1\.0: a number in"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    with pytest.raises(RecipeError, match=message):
        check(spec, "mixer")


def test_groups_that_do_not_divide_the_width_are_refused():
    with pytest.raises(RecipeError, match=r"mixer\.groups = 5: width 12 is not divisible by it; use"):
        LightConv(5, 3).fit("mixer", WIDTH)


def test_orders_and_other_texts_are_refused():
    mixer, x, context = LightConv(GROUPS, 3).build(WIDTH), torch.randn(1, 5, WIDTH), packed([[5]], 5)
    with pytest.raises(ValueError, match="cannot hide what order visibility hides"):
        mixer(x, None, context.narrow(sees=torch.zeros(1, 5, dtype=torch.long)))
    with pytest.raises(ValueError, match="needs the queries among the rows"):
        mixer(x, x, context.replace(source=Source(x, context.query)).across())
