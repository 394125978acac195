"""A bias with a reach: who is seen, and that nothing else changes."""

import pytest
import torch

from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.bias.within import Within
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Share, Stack
from clozeworks.recipes import recipe
from tests.toys import packed

WIDTH = 24


def built(reach: int):
    mixer = Attention(3, bias=Within(reach, Relative(clamp=4)), affine=False).build(WIDTH)
    torch.manual_seed(0)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return mixer


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("reach", [1, 3])
@pytest.mark.parametrize("offset", [0, None])
def test_only_what_is_near_is_seen(kind, reach, offset):
    context = packed([[9]], 9, kind)
    context = Context.make(context.query, context.memory, kind, offset)
    x = torch.randn(1, 9, WIDTH, requires_grad=True)
    out, _ = built(reach)(x, None, context)
    for i in range(9):
        (seen,) = torch.autograd.grad((out[0, i] * torch.arange(WIDTH)).sum(), x, retain_graph=True)
        expected = [abs(i - j) < reach and (kind == "full" or j <= i) for j in range(9)]
        assert (seen[0].abs().sum(-1) > 0).tolist() == expected


def test_with_a_reach_of_all_it_is_the_bias_alone():
    near, plain = built(9), Attention(3, bias=Relative(clamp=4), affine=False).build(WIDTH)
    plain.load_state_dict({name.replace("bias.bias", "bias"): value for name, value in near.state_dict().items()})
    x, context = torch.randn(2, 9, WIDTH), packed([[9], [4, 5]], 9, "causal")
    torch.testing.assert_close(near(x, None, context)[0], plain(x, None, context)[0])


def test_it_adds_the_values_of_the_bias_inside():
    torch.manual_seed(0)
    near, plain = (Attention(3, bias=bias).build(WIDTH) for bias in (Within(9, Shaw(2)), Shaw(2)))
    for parameter in near.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    plain.load_state_dict({name.replace("bias.bias", "bias"): value for name, value in near.state_dict().items()})
    x, context = torch.randn(2, 9, WIDTH), packed([[9], [4, 5]], 9)
    torch.testing.assert_close(near(x, None, context)[0], plain(x, None, context)[0])


def test_it_hides_no_more_than_the_bias_inside():
    assert Within(3, DistanceTable(4)).honours == DistanceTable(4).honours
    assert Within(3, Shaw()).honours == Shaw().honours


def test_a_reach_of_the_memory_gives_every_token_as_many():
    stack = Stack(1, Block(Attention(3, bias=Within(4, Relative())), FeedForward(8)), memory=4).build(WIDTH)
    x = torch.randn(1, 8, WIDTH)
    side = lambda at: TokenInfo.make(at[None], torch.zeros_like(at[None]), "causal")  # noqa: E731
    now = side(torch.arange(8))
    whole = stack(x, Context.make(now, now, "causal")).last
    first, second = side(torch.arange(4)), side(torch.arange(4, 8))
    past = stack(x[:, :4], Context.make(first, first, "causal")).memory
    last = stack(x[:, 4:], Context.make(second, second, "causal", past=past)).last
    torch.testing.assert_close(last, whole[:, 4:])


def test_layers_share_what_belongs_to_no_token():
    block = Block(Attention(3, bias=Within(4, Relative()), affine=False), FeedForward(8))
    one, many = (Stack(3, block, Share(bias=share)).build(WIDTH) for share in (1, None))
    count = lambda stack: sum(parameter.numel() for parameter in stack.parameters())  # noqa: E731
    assert count(many) - count(one) == 2 * 2 * WIDTH


def test_what_cannot_be_is_refused():
    r = recipe("transformer_xl_mini")
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(3, bias=Within(0, Relative()))
    r.encoder.width = 255
    with pytest.raises(RecipeError, match=r"reach = 0: 1 or more"):
        check(r, r.name)
    block.mixer.bias.reach = 1
    with pytest.raises(RecipeError, match="width 255 is odd"):
        check(r, r.name)


@pytest.mark.parametrize("around", [lambda bias: bias, lambda bias: Within(4, bias)], ids=["alone", "within another"])
def test_a_reach_that_leaves_no_key_is_refused(around):
    made = recipe("adaptive_span_mini")
    made.objective.losses = made.objective.losses[:1]  # without the price of spans
    for reach in (1, 2):
        made.encoder.stack.block.mixer.bias = around(Within(reach, DistanceTable(limit=40)))
        if reach == 2:
            check(made, "it")
        else:
            with pytest.raises(
                RecipeError, match="begins 1 before a token, so that nothing would be seen; use 2 or more"
            ):
                check(made, "it")
