import dataclasses

import pytest
import torch

from clozeworks.core.context import Context, Source
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from tests.toys import packed

WIDTH = 16


def stack(depth=4, **more) -> Stack:
    fields = {name: more.pop(name) for name in ("share", "memory", "norm") if name in more}
    return Stack(depth, Block(Attention(4), FeedForward(32), **{"dropout": 0.0, **more}), **fields)


@pytest.mark.parametrize("place", ["post", "pre"])
def test_segments_with_memory_equal_one_long_row_in_one_layer(place):
    """With one layer the memory holds the embeddings, so nothing is lost."""
    torch.manual_seed(0)
    remembering = stack(1, memory=8, place=place).build(WIDTH)
    x = torch.randn(2, 12, WIDTH)
    whole = packed([[12], [12]], 12, "causal")
    expected = remembering(x, whole).last
    past, out = None, []
    for at in range(0, 12, 4):
        side = whole.query.each(lambda v, at=at: v[:, at : at + 4])
        hidden = remembering(x[:, at : at + 4], Context.make(side, side, "causal", past=past))
        past = hidden.memory
        assert past is not None
        assert past.layers[0].shape[1] == past.token_info.position.shape[1] == min(8, at + 4)
        out.append(hidden.last)
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)


def test_no_gradient_flows_into_memory():
    remembering = stack(2, memory=4).build(WIDTH)
    x = torch.randn(1, 4, WIDTH, requires_grad=True)
    side = packed([[4]], 4, "causal").query
    past = remembering(x, Context.make(side, side, "causal")).memory
    later = packed([[8]], 8, "causal").query.tail(4)
    out = remembering(torch.randn(1, 4, WIDTH), Context.make(later, later, "causal", past=past)).last
    (gradient,) = torch.autograd.grad(out.square().sum(), x, allow_unused=True)
    assert gradient is None


@pytest.mark.parametrize("place", ["post", "pre"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_cached_stack_equals_the_whole(place, cross):
    torch.manual_seed(0)
    spec = stack(3, place=place, norm=LayerNorm())
    if cross:
        spec.block.cross = Attention(2)  # pyright: ignore[reportAttributeAccessIssue]
    module = spec.build(WIDTH)
    x = torch.randn(2, 9, WIDTH)
    source = Source(torch.randn(2, 5, WIDTH), packed([[5], [5]], 5).query) if cross else None
    if source is not None:  # pairs are matched by document: the same numbers on both sides
        source = Source(
            source.hidden, dataclasses.replace(source.token_info, document=torch.tensor([[0] * 5, [1] * 5]))
        )
    whole = packed([[9], [9]], 9, "causal", source=source)
    expected = module(x, whole).last
    past, out, at = None, [], 0
    for size in (1, 3, 1, 4):
        side = whole.query.each(lambda v, at=at, size=size: v[:, at : at + size])
        hidden = module(x[:, at : at + size], Context.make(side, side, "causal", past=past, carry=True, source=source))
        past = hidden.memory
        out.append(hidden.last)
        at += size
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)
    if cross:
        assert past is not None
        assert past.cross is not None


def test_sharing_ties_parameters_and_counts_them_once():
    attention = sum(p.numel() for p in Attention(4).build(WIDTH).parameters()) + 2 * WIDTH
    ffn = sum(p.numel() for p in FeedForward(32).build(WIDTH).parameters()) + 2 * WIDTH

    def count(share):
        return sum(p.numel() for p in stack(12, share=share).build(WIDTH).parameters())

    assert count(Share()) == 12 * (attention + ffn)
    assert count(Share(1, 1)) == attention + ffn
    assert count(Share(1, None)) == attention + 12 * ffn
    assert count(Share(None, 1)) == 12 * attention + ffn
    assert count(Share(3, 4)) == 3 * attention + 4 * ffn


def test_a_shared_stack_equals_one_with_copied_weights():
    torch.manual_seed(0)
    shared, own = stack(6, share=Share(2, 3)).build(WIDTH), stack(6).build(WIDTH)
    with torch.no_grad():
        for layer, block in enumerate(own.blocks):
            block.mixer.load_state_dict(shared.blocks[layer // 3 * 3].mixer.state_dict())
            block.mixer_norm.load_state_dict(shared.blocks[layer // 3 * 3].mixer_norm.state_dict())
            block.ffn.load_state_dict(shared.blocks[layer // 2 * 2].ffn.state_dict())
            block.ffn_norm.load_state_dict(shared.blocks[layer // 2 * 2].ffn_norm.state_dict())
    context = packed([[3, 4]], 7)
    x = torch.randn(1, 7, WIDTH)
    assert torch.equal(shared(x, context).last, own(x, context).last)
    shared(x, context).last.square().sum().backward()
    own(x, context).last.square().sum().backward()
    leader = shared.blocks[0].ffn.up.weight.grad
    summed = own.blocks[0].ffn.up.weight.grad + own.blocks[1].ffn.up.weight.grad
    torch.testing.assert_close(leader, summed)


def test_a_shared_layer_drops_other_units_at_each_depth():
    torch.manual_seed(0)
    module = stack(2, share=Share(1, 1), dropout=0.5).build(WIDTH)
    x = torch.randn(1, 5, WIDTH)
    hidden = module(x, packed([[5]], 5, key=DropoutKey.make(3)), layers=True)
    again = module(x, packed([[5]], 5, key=DropoutKey.make(3)), layers=True)
    assert torch.equal(hidden.last, again.last)
    context, expected = packed([[5]], 5, key=DropoutKey.make(3)), x
    for depth, block in enumerate(module.blocks):
        expected = block(expected, None, None, context.at(depth))[0]
    assert torch.equal(hidden.last, expected)
    same_input = [block(x, None, None, context.at(depth))[0] for depth, block in enumerate(module.blocks)]
    assert not torch.equal(*same_input)


def test_blocks_of_other_shapes_cannot_share():
    spec = Stack(2, (Block(Attention(4), FeedForward(32)), Block(Attention(4), FeedForward(48))), Share(None, 1))
    with pytest.raises(RecipeError, match=r"layer 1, up\.weight = \(48, 16\): \(32, 16\) is shared with it"):
        spec.build(WIDTH)


def test_a_tuple_of_blocks_is_cycled():
    blocks = (Block(Attention(4), FeedForward(32)), Block(Attention(2), None))
    module = Stack(5, blocks).build(WIDTH)
    assert [block.mixer.heads for block in module.blocks] == [4, 2, 4, 2, 4]
    assert [block.ffn is None for block in module.blocks] == [False, True, False, True, False]


def test_layers_are_returned_on_request_only():
    module = stack(3).build(WIDTH)
    x = torch.randn(1, 5, WIDTH)
    assert module(x, packed([[5]], 5)).layers == ()
    layers = module(x, packed([[5]], 5), layers=True).layers
    assert len(layers) == 4
    assert torch.equal(layers[0], x)


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("more", [{}, {"place": "pre", "norm": LayerNorm()}, {"dropout": 0.4}], ids=str)
def test_only_some_places_are_what_they_are_among_all(kind, more):
    torch.manual_seed(0)
    module = stack(3, **more).build(WIDTH)
    x = torch.randn(2, 9, WIDTH, requires_grad=True)
    lengths, key, places = [[4, 5], [9]], DropoutKey.make(5, rows=range(2)), torch.tensor([0, 3, 8, 9, 16])
    every = module(x, packed(lengths, 9, kind, key=key)).last.flatten(0, 1)
    some = module(x, packed(lengths, 9, kind, key=key, positions=places)).last.flatten(0, 1)
    torch.testing.assert_close(some[places], every[places])
    others = [index for index in range(18) if index not in places]
    assert some[others].isnan().all()
    weight = torch.randn(5, WIDTH)  # the sum of a normalised vector has no gradient
    inputs = [x, *module.parameters()]
    for mine, other in zip(
        torch.autograd.grad((some[places] * weight).sum(), inputs),
        torch.autograd.grad((every[places] * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, atol=2e-6, rtol=1e-4)


def test_every_layer_and_cross_attention_need_all_places():
    module = stack(2).build(WIDTH)
    x, places = torch.randn(1, 4, WIDTH), torch.tensor([1])
    hidden = module(x, packed([[4]], 4, positions=places), layers=True)
    assert not hidden.last.isnan().any()
    assert torch.equal(hidden.last, hidden.layers[-1])


def test_recomputation_changes_no_bit():
    torch.manual_seed(0)
    module = stack(3, dropout=0.3).build(WIDTH)
    x = torch.randn(2, 9, WIDTH, requires_grad=True)
    results = []
    for module.recompute in (False, True):
        last = module(x, packed([[4, 5], [9]], 9, key=DropoutKey.make(1, rows=range(2)))).last
        results.append([last, *torch.autograd.grad(last.square().sum(), [x, *module.parameters()])])
    for kept, again in zip(*results, strict=True):
        assert torch.equal(kept, again)


def test_recomputation_keeps_less():
    def kept(recompute: bool) -> int:
        module.recompute, sizes = recompute, []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
            module(x, packed([[9]] * 8, 9))
        return sum(sizes)

    module, x = stack(3).build(WIDTH), torch.randn(8, 9, WIDTH)
    assert kept(True) < 0.2 * kept(False)


def test_of_rows_that_overlap_the_next_only_the_beginning_is_remembered():
    stack = Stack(2, Block(Attention(2), FeedForward(16)), memory=5).build(8)
    x = torch.randn(2, 6, 8)
    context = packed([[6], [6]], 6, "causal")
    whole, part = stack(x, context), stack(x, context.replace(keep=4))
    assert torch.equal(part.last, whole.last)
    assert [layer.shape[1] for layer in part.memory.layers] == [4, 4]
    assert torch.equal(part.memory.layers[0], x[:, :4])
    assert part.memory.token_info.position[0].tolist() == [0, 1, 2, 3]
    assert torch.equal(whole.memory.layers[0], x[:, 1:])


@pytest.mark.parametrize("sizes", [[1] * 9, [3, 3, 3], [7, 2]])
@pytest.mark.parametrize("memory", [0, 20])
def test_relative_positions_are_the_same_in_pieces(sizes, memory):
    """With keys and values kept, and with hidden rows kept."""
    torch.manual_seed(0)
    spec = stack(2, memory=memory)
    spec.block.mixer = Attention(4, bias=Relative(clamp=6))  # pyright: ignore[reportAttributeAccessIssue]
    module = spec.build(WIDTH)
    for block in module.blocks:
        torch.nn.init.normal_(block.mixer.bias.u)
        torch.nn.init.normal_(block.mixer.bias.v)
    x, whole = torch.randn(2, 9, WIDTH), packed([[9], [9]], 9, "causal")
    expected, past, out, at = module(x, whole).last, None, [], 0
    for size in sizes:
        side = whole.query.each(lambda v, at=at, size=size: v[:, at : at + size])
        hidden = module(x[:, at : at + size], Context.make(side, side, "causal", past=past, carry=not memory))
        past, at = hidden.memory, at + size
        out.append(hidden.last)
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)


def test_dropout_after_the_last_block_and_of_inner_units():
    torch.manual_seed(0)
    x, key = torch.randn(2, 5, WIDTH), DropoutKey.make(3, rows=range(2))
    plain, last = stack(1).build(WIDTH), dataclasses.replace(stack(1), dropout=0.5).build(WIDTH)
    last.load_state_dict(plain.state_dict())
    expected = plain(x, packed([[5], [5]], 5)).last
    assert torch.equal(last(x, packed([[5], [5]], 5)).last, expected)
    dropped = last(x, packed([[5], [5]], 5, key=key)).last
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * expected[kept])
    places = torch.tensor([1, 7])
    some = last(x, packed([[5], [5]], 5, key=key, positions=places)).last.flatten(0, 1)
    torch.testing.assert_close(some[places], dropped.flatten(0, 1)[places])
    part = FeedForward(32, "relu", dropout=0.5).build(WIDTH)
    inner = torch.relu(part.up(x))
    assert torch.equal(part(x), part.down(inner))
    assert torch.equal(part(x, key), part.down(dropout(inner, 0.5, key)))


@pytest.mark.parametrize("part", [dataclasses.replace(stack(1), dropout=1.0), FeedForward(8, dropout=-0.1)])
def test_a_rate_that_is_none_is_refused(part):
    with pytest.raises(RecipeError, match=r"part\.dropout = .*: a number in \[0, 1\) is needed"):
        check(part, "part")
