"""Windows in pieces equal the dense definition; what is dropped, the gradient and the memory by themselves."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.cache import KVCache
from clozeworks.core.context import AttentionCapture, Context
from clozeworks.core.dropout import DropoutKey, keep
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.kernels import backends, blocks, windowed
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.window import Window
from tests.toys import packed

HEADS, SIZE = 3, 4
CONTEXTS = {
    "one": ([[1]], 1),
    "odd": ([[23], [23]], 23),
    "padded": ([[5], [23], [19]], 23),
    "packed": ([[3, 4, 11], [1, 2, 2, 7, 7, 4], [23]], 23),
}
WINDOWS = [Window(0), Window(1), Window(3), Window(2, 5), Window(6, 0), Window(40), Window(2, 1, (1, 2, 3)),
           Window(3, 3, (2, 1, 2)), Window(2, 2, 5)]  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Several pieces in rows of a few tokens."""
    monkeypatch.setattr(windowed, "SHORT", -1000)
    monkeypatch.setattr(windowed, "QUERIES", 4)
    monkeypatch.setattr(blocks, "QUERIES", 4)


def triple(length, memory=None, rows=1, dtype=torch.float64, size=SIZE):
    """q, k, v as the projections give them: heads beside each other in every row."""
    torch.manual_seed(0)
    sizes = (length, memory or length, memory or length)
    return [torch.randn(rows, n, HEADS, size, dtype=dtype).transpose(1, 2).requires_grad_() for n in sizes]


def compare(actual, expected, inputs, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    g = torch.randn_like(expected)
    pairs = zip(torch.autograd.grad(actual, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True)
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def numbered(context, generator):
    """The same tokens with visibility in an order of its own: some see nothing, not even themselves."""
    rank = torch.rand(context.query.position.shape, generator=generator).argsort(1)
    side = dataclasses.replace(context.query, appears=rank, sees=rank - 1)
    return Context.make(side, side, "order")


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["full", "causal", "order"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_it_is_the_dense_definition(name, kind, window):
    lengths, width = CONTEXTS[name]
    context = packed(lengths, width, "full" if kind == "order" else kind)
    if kind == "order":
        context = numbered(context, torch.Generator().manual_seed(0))
    q, k, v = triple(width, rows=len(lengths))
    expected = backends.dense(q, KVCache(k, v), context, near=window.near(context))
    compare(windowed.windowed(q, KVCache(k, v), context, window, 0.0), expected, [q, k, v])


@pytest.mark.parametrize("window", [Window(40), Window(30, 22)], ids=str)
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_a_window_over_all_is_attention(kind, window):
    context = packed([[23], [11, 12]], 23, kind)
    q, k, v = triple(23, rows=2)
    compare(
        backends.attend(q, KVCache(k, v), context, window=window), backends.dense(q, KVCache(k, v), context), [q, k, v]
    )


def test_single_precision_in_pieces_of_the_usual_size(monkeypatch):
    monkeypatch.undo()
    context = packed([[333], [200, 100]], 333)
    q, k, v = triple(333, rows=2, dtype=torch.float32, size=16)
    window = Window(40, 50)
    expected = backends.dense(q, KVCache(k, v), context, near=window.near(context))
    compare(backends.attend(q, KVCache(k, v), context, window=window), expected, [q, k, v], 1e-5)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_rows_before_the_queries(length, kind, window):
    """A memory or a cache, of which one row has forgotten the first tokens."""
    whole = packed([[17], [17]], 17, kind).query
    query = whole.tail(length)
    past = whole.each(lambda value: value[:, : 17 - length])
    past = dataclasses.replace(past, document=past.document.clone())
    past.document[1, :5] = -2
    context = Context.make(query, query, kind).after(past)
    q, k, v = triple(length, 17, rows=2)
    expected = backends.dense(q, KVCache(k, v), context, near=window.near(context))
    compare(windowed.windowed(q, KVCache(k, v), context, window, 0.0), expected, [q, k, v])


@pytest.mark.parametrize("window", [Window(2), Window(5, 1), Window(2, 2, (1, 2, 3))], ids=str)
@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_marked_tokens_are_seen_from_everywhere_and_once(name, kind, window):
    lengths, width = CONTEXTS[name]
    context = packed(lengths, width, kind)
    marked = torch.rand(context.query.position.shape, generator=torch.Generator().manual_seed(1)) < 0.2
    marked[0] = False
    side = dataclasses.replace(context.query, marked=marked)
    context = context.replace(query=side, memory=side, most_marked=int(marked.sum(1).max()))
    q, k, v = triple(width, rows=len(lengths))
    near = window.near(context) | marked[:, None, None]
    expected = backends.dense(q, KVCache(k, v), context, near=near)
    compare(windowed.windowed(q, KVCache(k, v), context, window, 0.0, marks=True), expected, [q, k, v])


@pytest.mark.parametrize("marks", [None, [2, 9, 22], [], list(range(23))])
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_the_mixer_with_marked_tokens_is_its_definition(kind, marks):
    torch.manual_seed(0)
    mixer = GlobalWindow(3, Window(2, 3, (1, 1, 2))).build(12).double()
    context = packed([[23], [5, 17]], 23, kind)
    if marks is not None:
        marked = torch.zeros(2, 23, dtype=torch.bool)
        marked[0, marks] = True
        marked[1, marks[:1]] = True
        side = dataclasses.replace(context.query, marked=marked)
        context = context.replace(query=side, memory=side, most_marked=len(marks))
    x = torch.randn(2, 23, 12, dtype=torch.float64, requires_grad=True)
    inputs = [x, *mixer.parameters()] if marks else [x]
    expected = mixer(x, None, context.replace(backend="dense", scratch={}))[0]
    compare(mixer(x, None, context)[0], expected, inputs)


@pytest.mark.parametrize("bias", [Relative(), Relative(clamp=2, segments=True), Shaw(2)], ids=str)
@pytest.mark.parametrize("window", [Window(3), Window(2, 5), Window(6, 0), Window(2, 2, 2)], ids=str)
@pytest.mark.parametrize("kind", ["full", "causal", "memory"])
def test_a_bias_in_blocks_is_the_dense_definition(kind, window, bias):
    torch.manual_seed(0)
    mixer = Attention(3, bias=bias, window=window).build(12).double()
    for parameter in mixer.bias.parameters():
        torch.nn.init.normal_(parameter, 0.3, 0.3)
    x = torch.randn(2, 23, 12, dtype=torch.float64, requires_grad=True)
    rows, context = None, packed([[23], [5, 17]], 23, "full" if kind == "full" else "causal")
    query = x
    if kind == "memory":
        whole = packed([[23], [23]], 23, "causal").query
        last = whole.tail(9)
        context = Context.make(last, last, "causal").after(whole.each(lambda value: value[:, :14]))
        rows, query = x, x[:, 14:]
    expected = mixer(query, rows, context.replace(backend="dense", scratch={}))[0]
    compare(mixer(query, rows, context)[0], expected, [x, *mixer.bias.parameters()])
    with torch.no_grad():
        actual = mixer(query, rows, context.replace(scratch={}))[0]
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("irregular", ["offset", "backward", "capture"])
def test_what_has_no_fast_path_takes_the_definition(irregular, monkeypatch):
    monkeypatch.setattr(backends, "windowed", None)
    context = packed([[9]], 9, "causal")
    change = {"offset": None, "backward": torch.tensor([True]), "capture": AttentionCapture()}[irregular]
    context = context.replace(**{irregular: change})
    q, k, v = triple(9)
    window = Window(2, 1)
    expected = backends.dense(q, KVCache(k, v), context, near=window.near(context))
    torch.testing.assert_close(backends.attend(q, KVCache(k, v), context, window=window), expected)


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 30),
    left=st.integers(0, 31),
    right=st.integers(0, 31),
    steps=st.tuples(*[st.integers(1, 6)] * HEADS),
    cuts=st.lists(st.integers(1, 29), max_size=4, unique=True),
    marks=st.lists(st.integers(0, 29), max_size=4, unique=True),
    kind=st.sampled_from(["full", "causal"]),
)
def test_whatever_the_shape(length, left, right, steps, cuts, marks, kind):
    borders = [0, *sorted(cut for cut in cuts if cut < length), length]
    context = packed([[b - a for a, b in itertools.pairwise(borders)]], length, kind)
    marked = torch.zeros(1, length, dtype=torch.bool)
    marked[0, [mark for mark in marks if mark < length]] = True
    side = dataclasses.replace(context.query, marked=marked)
    context = context.replace(query=side, memory=side)
    window = Window(left, right, steps)
    q, k, v = triple(length)
    expected = backends.dense(q, KVCache(k, v), context, near=window.near(context) | marked[:, None, None])
    compare(windowed.windowed(q, KVCache(k, v), context, window, 0.0, marks=True), expected, [q, k, v])


@pytest.mark.parametrize("window", [Window(3), Window(2, 1, (1, 2, 2))], ids=str)
@pytest.mark.parametrize("kind", ["full", "causal"])
def test_the_gradient_under_dropout(kind, window):
    context = packed([[11], [5, 6]], 11, kind, key=DropoutKey.make(3))
    assert torch.autograd.gradcheck(
        lambda q, k, v: windowed.windowed(q, KVCache(k, v), context, window, 0.3), triple(11, rows=2), fast_mode=True
    )


def test_dropout_has_its_rate_and_each_piece_its_own():
    """Values of one and no scores: what comes out is the share of the weights that were kept, made larger."""
    context = packed([[64], [64]], 64, key=DropoutKey.make(1, rows=range(2)))
    k = torch.randn(2, HEADS, 64, SIZE)
    q, v = torch.zeros_like(k), torch.ones_like(k)
    result = windowed.windowed(q, KVCache(k, v), context, Window(20), 0.3)[..., 0]
    assert abs(float(result.mean()) - 1) < 0.02
    pieces = result[0].unfold(1, 4, 4).transpose(0, 1).flatten(1)[5:10]  # whole bands
    assert len({tuple(piece.tolist()) for piece in pieces}) == 5
    alone = packed([[64]], 64, key=DropoutKey.make(1, rows=range(1, 2)))
    again = windowed.windowed(q[1:], KVCache(k[1:], v[1:]), alone, Window(20), 0.3)[..., 0]
    torch.testing.assert_close(again, result[1:])


def test_what_is_dropped_is_what_the_key_says():
    context = packed([[3]], 3, key=DropoutKey.make(1))
    q, k, v = triple(3)
    weights = (q @ k.transpose(-1, -2) / SIZE**0.5).softmax(-1)
    key = context.at("weights").key
    assert key is not None
    mask = keep(key.within(torch.tensor([0]), 1).seeds, None, key.site, weights, 0.4)
    result = windowed.windowed(q, KVCache(k, v), context, Window(5), 0.4)
    torch.testing.assert_close(result, (weights * mask / 0.6) @ v)


def test_a_device_without_bits_drops_the_same(monkeypatch):
    context = packed([[23], [5, 18]], 23, key=DropoutKey.make(4, rows=range(2)))
    inputs = triple(23, rows=2)
    result = windowed.windowed(inputs[0], KVCache(*inputs[1:]), context, Window(3), 0.3)
    first = torch.autograd.grad(result.square().sum(), inputs)
    monkeypatch.setattr(DropoutKey, "states", lambda _: None)
    again = windowed.windowed(inputs[0], KVCache(*inputs[1:]), context, Window(3), 0.3)
    assert torch.equal(again, result)
    assert all(map(torch.equal, torch.autograd.grad(again.square().sum(), inputs), first))


def test_under_dropout_one_bit_a_weight_is_kept():
    q, k, v = triple(23)
    context, kept = packed([[23]], 23, key=DropoutKey.make(1)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        windowed.windowed(q, KVCache(k, v), context, Window(3), 0.3)
    (plan,) = (value for value in context.scratch.values() if isinstance(value, windowed.Plan))
    *whole, bits = kept
    assert all(
        x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() for x, y in zip(whole, (q, k, v), strict=True)
    )
    assert bits.untyped_storage().nbytes() == sum(-(-HEADS * piece.hidden.numel() // 8) for piece in plan.pieces)


@pytest.mark.parametrize("bias", [None, Relative()], ids=str)
def test_what_is_kept_grows_like_the_length(bias, monkeypatch):
    monkeypatch.undo()
    mixer = Attention(2, dropout=0.1, bias=bias, window=Window(16)).build(8)
    results = []
    for length in (512, 1024, 2048):
        context = packed([[length]], length, key=DropoutKey.make(1))
        kept: dict[int, int] = {}

        def keeps(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keeps, lambda tensor: tensor):
            mixer(torch.randn(1, length, 8, requires_grad=True), None, context)
        results.append(sum(kept.values()))
    assert results[2] - results[1] == pytest.approx(2 * (results[1] - results[0]), rel=0.02)


def test_a_long_document_has_one_mask_for_all_its_pieces(monkeypatch):
    monkeypatch.undo()
    results = []
    for lengths in ([1000], [300, 700]):
        context = packed([lengths], 1000)
        q, k, v = triple(1000, size=1)
        windowed.windowed(q, KVCache(k, v), context, Window(16), 0.0)
        (plan,) = (value for value in context.scratch.values() if isinstance(value, windowed.Plan))
        results.append(len({piece.hidden.untyped_storage().data_ptr() for piece in plan.pieces}))
    assert results == [1, 2]  # where two documents meet in the middle of a piece, that has its own


def test_shapes_without_values():
    context = packed([[23]], 23, key=DropoutKey.make(1))
    side = dataclasses.replace(context.query, marked=context.query.position < 2).each(lambda v: v.to("meta"))
    context = context.replace(query=side, memory=side, most_marked=2)
    mixer = GlobalWindow(3, Window(3), dropout=0.1).build(12).to("meta")
    x = torch.empty(1, 23, 12, device="meta", requires_grad=True)
    out, _ = mixer(x, None, context)
    assert out.shape == x.shape
    out.sum().backward()


def test_documents_are_found_without_borders():
    context = packed([[5, 9, 9], [23]], 23)
    q, k, v = triple(23, rows=2)
    bare = context.replace(layout=None, scratch={})
    assert torch.equal(*(windowed.windowed(q, KVCache(k, v), each, Window(3), 0.0) for each in (context, bare)))
