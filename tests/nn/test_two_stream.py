"""Two streams against a plain loop, and what each of them may know."""

import pytest
import torch
from torch import Tensor

from clozeworks.core.batch import Hidden
from clozeworks.core.context import AttentionCapture, Context, Memory
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import PADDING, TokenInfo
from clozeworks.model import initialise
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from clozeworks.nn.two_stream import TwoStream, TwoStreamLayer
from tests.toys import packed

WIDTH = 16
LENGTHS = [[5, 4], [7], [3, 3, 3]]
TARGETS = torch.tensor([1, 3, 6, 8, 11, 12, 15, 18, 20, 22, 26])  # four, three and four in rows of nine


def streams(depth: int = 3, **more) -> TwoStreamLayer:
    torch.manual_seed(0)
    fields = {name: more.pop(name) for name in ("share", "memory", "norm") if name in more}
    block = Block(more.pop("mixer", Attention(4)), FeedForward(32), **{"dropout": 0.0, **more})
    module = TwoStream(depth, block, **fields).build(WIDTH)
    initialise(module, 0.3, seed=0)
    return module


def ordered(lengths: list[list[int]], width: int, targets: Tensor, seed: int = 0) -> Context:
    """Rows in which the targets come last, in an order of their own in each document."""
    plain = packed(lengths, width)
    order = torch.zeros_like(plain.query.position).flatten()
    order[targets] = 1 + torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    order = order.view_as(plain.query.position)
    side = TokenInfo(plain.query.position, plain.query.document, order, order)
    return Context.make(side, side, "order", layout=plain.layout, targets=targets)


def by_loop(module: TwoStreamLayer, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
    """h [B, L, D] and g [T, D], one token after another."""
    side, targets = context.query, context.targets
    assert targets is not None
    rows, length = side.position.shape
    sees = lambda b, i, j: bool(side.document[b, i] == side.document[b, j])  # noqa: E731

    def mixed(mixer, vector, seen):
        if not len(seen):
            return mixer.out.bias
        q = mixer.query(vector).view(4, -1)
        k, v = mixer.key(seen).view(len(seen), 4, -1), mixer.value(seen).view(len(seen), 4, -1)
        weights = (torch.einsum("hd,nhd->hn", q, k) / q.shape[-1] ** 0.5).softmax(-1)
        return mixer.out(torch.einsum("hn,nhd->hd", weights, v).flatten())

    def through(block, vector, seen):
        vector = block.mixer_norm(vector + mixed(block.mixer, vector, seen))
        return block.ffn_norm(vector + block.ffn(vector[None])[0])

    h, g = x, [module.blank] * len(targets)
    for block in module.blocks:
        later = torch.empty_like(h)
        for b in range(rows):
            for i in range(length):
                may = [j for j in range(length) if sees(b, i, j) and side.appears[b, j] <= side.appears[b, i]]
                later[b, i] = through(block, h[b, i], h[b, may])
        for t, place in enumerate(targets.tolist()):
            b, i = divmod(place, length)
            may = [j for j in range(length) if sees(b, i, j) and side.appears[b, j] < side.appears[b, i]]
            g[t] = through(block, g[t], h[b, may])
        h = later
    return h, torch.stack(g)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 9, WIDTH, generator=torch.Generator().manual_seed(1))


def test_both_streams_equal_a_plain_loop(x):
    module, context = streams(), ordered(LENGTHS, 9, TARGETS)
    with torch.no_grad():
        h, g = by_loop(module, x, context)
        result = module(x, context)
    torch.testing.assert_close(result.last, h, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(result.query_stream, g, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("targets", [[20, 3, 11, 1, 26, 8], [4], []])
def test_the_vectors_come_in_the_order_of_the_targets(x, targets):
    module, context = streams(), ordered(LENGTHS, 9, TARGETS)
    every = torch.arange(27)
    whole = module(x, context.replace(targets=every, scratch={})).query_stream
    some = module(x, context.replace(targets=torch.tensor(targets, dtype=torch.long), scratch={})).query_stream
    torch.testing.assert_close(some, whole[targets], atol=2e-6, rtol=1e-5)


def test_without_targets_it_is_a_stack(x):
    module = streams(norm=LayerNorm())
    plain = Stack(3, Block(Attention(4), FeedForward(32), dropout=0.0), norm=LayerNorm()).build(WIDTH)
    plain.load_state_dict({name: value for name, value in module.state_dict().items() if name != "blank"})
    context = packed(LENGTHS, 9)
    result = module(x, context)
    assert torch.equal(result.last, plain(x, context).last)
    assert result.query_stream is None


def test_the_first_stream_does_not_depend_on_the_second(x):
    module, context = streams(), ordered(LENGTHS, 9, TARGETS)
    result = module(x, context, layers=True)
    alone = module(x, context.replace(targets=None, scratch={}), layers=True)
    for one, other in zip((result.last, *result.layers), (alone.last, *alone.layers), strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


MIXERS = {"plain": Attention(4), "relative": Attention(4, bias=Relative(segments=True), affine=False)}


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("backend", ["dense", "sdpa"])
def test_nobody_knows_what_it_may_not(x, backend, mixer):
    """By gradient: a question has none to its own token, to later ones, to neighbours and to padding."""
    module = streams(2, mixer=MIXERS[mixer])
    context = ordered(LENGTHS, 9, TARGETS).replace(backend=backend)
    x.requires_grad_(True)
    result, weights = module(x, context), torch.randn(WIDTH)
    side = context.query
    for t, place in enumerate(TARGETS.tolist()):
        b, i = divmod(place, 9)
        (gradient,) = torch.autograd.grad((result.query_stream[t] * weights).sum(), x, retain_graph=True)
        touched = gradient.abs().sum(-1) > 0
        earlier = (side.document[b] == side.document[b, i]) & (side.appears[b] < side.appears[b, i])
        assert torch.equal(touched[b], earlier)
        assert not touched[[other for other in range(3) if other != b]].any()
        (gradient,) = torch.autograd.grad((result.last[b, i] * weights).sum(), x, retain_graph=True)
        assert bool(gradient[b, i].any()), "the first stream knows its own token"
    assert not (side.document == PADDING).flatten()[TARGETS].any()


@pytest.mark.parametrize("mixer", MIXERS)
def test_packed_equals_alone(x, mixer):
    module, context = streams(mixer=MIXERS[mixer]), ordered(LENGTHS, 9, TARGETS)
    result = module(x, context)
    for row, documents in enumerate(LENGTHS):
        at = 0
        for length in documents:
            begin = row * 9 + at
            mine = (begin <= TARGETS) & (begin + length > TARGETS)
            side = context.query.each(lambda v, row=row, at=at, n=length: v[row : row + 1, at : at + n])
            alone = Context.make(side, side, "order", targets=TARGETS[mine] - begin)
            hidden = module(x[row : row + 1, at : at + length], alone)
            torch.testing.assert_close(result.last[row, at : at + length], hidden.last[0], atol=2e-6, rtol=1e-5)
            torch.testing.assert_close(result.query_stream[mine], hidden.query_stream, atol=2e-6, rtol=1e-5)
            at += length


@pytest.mark.parametrize("place", ["post", "pre"])
def test_the_last_block_gives_the_first_stream_only_where_it_is_read(x, place):
    module, context = streams(place=place), ordered(LENGTHS, 9, TARGETS)
    whole = module(x, context)
    for places in ([], [2, 13]):
        chosen = torch.tensor(places, dtype=torch.long)
        result = module(x, context.replace(positions=chosen, scratch={}))
        torch.testing.assert_close(result.query_stream, whole.query_stream)
        flat = result.last.flatten(0, 1)
        torch.testing.assert_close(flat[places], whole.last.flatten(0, 1)[places], atol=2e-6, rtol=1e-5)
        assert int(flat.isnan().all(-1).sum()) == 27 - len(places)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("place", ["post", "pre"])
def test_both_streams_see_what_was_read_before(x, place, mixer):
    """With one layer the memory holds all there is to know of the older rows: as if they stood in the row."""
    module = streams(1, memory=9, place=place, mixer=MIXERS[mixer])
    older = torch.randn(3, 9, WIDTH)
    context = ordered([[9]] * 3, 9, TARGETS)
    before = context.query.earlier(9)
    result = module(x, context.replace(past=Memory((older,), before)))
    side = before.cat(context.query)
    row, column = TARGETS // 9, TARGETS % 9
    long = Context.make(side, side, "order", targets=row * 18 + 9 + column)
    whole = module(torch.cat([older, x], 1), long)
    torch.testing.assert_close(result.query_stream, whole.query_stream, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(result.last, whole.last[:, 9:], atol=2e-6, rtol=1e-5)
    assert result.memory is not None
    assert torch.equal(result.memory.layers[0], x)


def test_what_is_remembered_is_what_a_stack_remembers(x):
    module = streams(memory=5)
    context = ordered([[9]] * 3, 9, TARGETS).replace(keep=6)
    result = module(x, context).memory
    alone = module(x, context.replace(targets=None, scratch={})).memory
    for one, other in zip(result.layers, alone.layers, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)
    assert torch.equal(result.token_info.position, alone.token_info.position)


def test_recomputing_changes_no_gradient(x):
    def gradients(again: bool) -> list[Tensor]:
        module = streams(mixer=Attention(4, dropout=0.2), dropout=0.1)
        module.recompute = again
        context = ordered(LENGTHS, 9, TARGETS).replace(key=DropoutKey.make(3, rows=range(3)))
        result = module(x, context)
        (result.query_stream.square().sum() + result.last.square().sum()).backward()
        return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]

    plain, again = gradients(False), gradients(True)
    assert len(plain) == len(list(streams().parameters()))
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one, other)


def test_a_row_drops_the_same_in_another_batch(x):
    module, context = (
        streams(1, dropout=0.2),
        ordered([[9]] * 3, 9, TARGETS),
    )  # one layer: the questions drop themselves
    whole = module(x, context.replace(key=DropoutKey.make(3, rows=range(3)))).query_stream
    side = context.query.each(lambda value: value[1:2])
    mine = (TARGETS >= 9) & (TARGETS < 18)
    alone = Context.make(side, side, "order", targets=TARGETS[mine] - 9, key=DropoutKey.make(3, rows=range(1, 2)))
    torch.testing.assert_close(module(x[1:2], alone).query_stream, whole[mine], atol=2e-6, rtol=1e-5)
    assert not torch.allclose(module(x, context).query_stream, whole, atol=1e-2)


def test_layers_may_share_their_weights(x):
    module = streams(share=Share(1, 1))
    result = module(x, ordered(LENGTHS, 9, TARGETS))
    assert result.query_stream.shape == (11, WIDTH)
    assert sum(p.numel() for p in module.parameters()) == WIDTH + sum(p.numel() for p in module.blocks[0].parameters())


@pytest.mark.parametrize("places", [None, torch.zeros(0, dtype=torch.long)])
def test_taps_are_those_of_the_first_stream(x, places):
    capture = AttentionCapture()
    streams(2)(x, ordered(LENGTHS, 9, TARGETS).replace(capture=capture, positions=places))
    assert {name: weights.shape for name, weights in capture.captured.items()} == {
        "weights.0": (3, 4, 9, 9),
        "weights.1": (3, 4, 9, 9),
    }


def test_shapes_flow_without_values():
    with torch.device("meta"):
        module = TwoStream(2, Block(Attention(4), FeedForward(32))).build(WIDTH)
        side = packed([[9]] * 3, 9).query.each(lambda value: value.to("meta"))
        result: Hidden = module(torch.empty(3, 9, WIDTH), Context.make(side, side, "order", targets=TARGETS.to("meta")))
    assert result.query_stream is not None
    assert result.query_stream.shape == (11, WIDTH)


def test_what_cannot_have_two_streams_is_refused():
    with pytest.raises(RecipeError, match=r"stack\.block\.cross .* no source"):
        TwoStream(2, Block(Attention(4), FeedForward(32), cross=Attention(4))).check("stack")
