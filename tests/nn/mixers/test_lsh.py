"""LSH attention against another implementation, a loop over pairs, and its own dense definition."""

import math

import pytest
import torch

from clozeworks.core.context import AttentionCapture
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.core.token_info import visible
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.kernels import hashing, ring
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.stack import Stack
from clozeworks.nn.two_stream import TwoStream
from tests.toys import packed

WIDTH, HEADS, SIZE, CHUNK = 24, 3, 10, 8  # heads times their size is not the width
CASES = [(5, ()), (8, ()), (16, ()), (40, ()), (40, (0, 13)), (45, ()), (45, (0, 13))]  # length, padding of each row


def other(kind, causal, rounds=1, buckets=4, before=1, after=0, seed=5):
    """Reformer's layers as transformers has them."""
    modeling = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    from transformers import ReformerConfig

    config = ReformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_head_size=SIZE,
        lsh_attn_chunk_length=CHUNK,
        local_attn_chunk_length=CHUNK,
        num_hashes=rounds,
        num_buckets=list(buckets) if isinstance(buckets, tuple) else buckets,
        lsh_num_chunks_before=before,
        lsh_num_chunks_after=after,
        local_num_chunks_before=before,
        local_num_chunks_after=after,
        hash_seed=seed,
        is_decoder=causal,
        lsh_attention_probs_dropout_prob=0.0,
        local_attention_probs_dropout_prob=0.0,
        attn_layers=[kind],
    )
    torch.manual_seed(1)
    return (modeling.LSHSelfAttention if kind == "lsh" else modeling.LocalSelfAttention)(config).eval()


def ours(theirs, spec):
    """Ours with the same weights; out is the identity as far as it goes."""
    layer = spec.build(WIDTH)
    state = {name: value for name, value in theirs.state_dict().items() if name.endswith("weight")}
    layer.load_state_dict(state | {"out.weight": torch.eye(WIDTH, HEADS * SIZE)})
    return layer


def compare(theirs, spec, length, causal, padding=()):
    """Outputs and gradients to the input; rows are padded for them, which cannot read other lengths.

    Theirs finds its buckets in fp32 and the rest in fp64: its weights of rounds are exp(a - b) for a and b near -1e5
    where a token sees only itself, and in fp32 these have steps of 0.008.
    """
    layer = ours(theirs, spec)
    x = torch.randn(2, length, WIDTH) * 3
    whole = length if length <= CHUNK else -(-length // CHUNK) * CHUNK
    theirs_x = torch.nn.functional.pad(x, (0, 0, 0, whole - length)).requires_grad_()
    ours_x = x.clone().requires_grad_()
    lengths = [length - n for n in padding] or [length, length]
    mask = (torch.arange(whole) < torch.tensor(lengths)[:, None]).long()
    more = {"attention_mask": mask if mask.sum() < mask.numel() else None}
    if isinstance(spec, LSH) and length > CHUNK:
        more["buckets"] = theirs(theirs_x, **more).buckets
    given = theirs.double()(theirs_x.double(), **more).hidden_states.float()
    context = packed([[n] for n in lengths], length, "causal" if causal else "full")
    result, _ = layer(ours_x, None, context)
    real = mask[:, :length].bool()
    weight = torch.randn(2, length, WIDTH)
    for out, start in ((given[:, :length, :WIDTH], theirs_x), (result, ours_x)):
        (out * weight)[real].sum().backward()
        assert start.grad is not None
    return result[real], given[:, :length, :WIDTH][real], ours_x.grad, theirs_x.grad[:, :length]


@pytest.mark.parametrize(("length", "padding"), CASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("rounds", "buckets", "before", "after"),
    [(1, 4, 1, 0), (3, 4, 1, 0), (2, (2, 4), 1, 1), (2, 6, 0, 0), (2, 4, 2, 0)],
)
def test_equals_the_layer_of_transformers(rounds, buckets, before, after, causal, length, padding):
    theirs = other("lsh", causal, rounds, buckets, before, after)
    spec = LSH(HEADS, SIZE, CHUNK, rounds, buckets, before, after, seed=5)
    result, given, ours_grad, theirs_grad = compare(theirs, spec, length, causal, padding)
    torch.testing.assert_close(result, given, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours_grad, theirs_grad, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(("length", "padding"), CASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 0), (1, 1), (0, 0)])
def test_local_attention_equals_that_of_transformers(before, after, causal, length, padding):
    theirs = other("local", causal, before=before, after=after)
    spec = LocalAttention(HEADS, SIZE, CHUNK, before, after)
    result, given, ours_grad, theirs_grad = compare(theirs, spec, length, causal, padding)
    torch.testing.assert_close(result, given, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours_grad, theirs_grad, atol=5e-5, rtol=1e-4)


def by_hand(q, v, buckets, spec, seen):
    """One row and head, a pair at a time: q, v [L, d], buckets [rounds, L], seen [L, L] -> [L, d]."""
    length, rounds = len(q), len(buckets)
    filled = -(-length // spec.chunk) * spec.chunk
    slots = []
    for bucket in buckets:
        slots += sorted(range(length), key=lambda t, bucket=bucket: (int(bucket[t]), t)) + [None] * (filled - length)
    chunks = [slots[n : n + spec.chunk] for n in range(0, len(slots), spec.chunk)]
    out = torch.zeros_like(v)
    unit = q / q.norm(dim=-1, keepdim=True)
    for t in range(length):
        scores, values = [], []
        for number, chunk in enumerate(chunks):
            if t not in chunk:
                continue
            for beside in range(-spec.before, spec.after + 1):
                for j in chunks[(number + beside) % len(chunks)]:
                    if j is not None and (j == t or seen[t, j]):
                        scores.append(torch.tensor(-1e5) if j == t else q[t] @ unit[j])
                        values.append(v[j])
        out[t] = torch.stack(scores).softmax(0) @ torch.stack(values)
    assert rounds * filled == len(slots)
    return out


SPECS = {
    "one round": LSH(2, chunk=4, buckets=4),
    "three": LSH(2, chunk=3, rounds=3, buckets=4),
    "both sides": LSH(2, chunk=4, rounds=2, buckets=(2, 2), after=1),
    "around": LSH(2, chunk=4, buckets=4, before=3),  # as far back as there are chunks: each meets itself again
    "local": LocalAttention(2, chunk=4),
}
ROWS = {
    "whole": ([[12], [12]], 12),
    "odd": ([[11], [11]], 11),
    "padded": ([[11], [3]], 11),
    "packed": ([[3, 7], [1, 5, 5]], 11),
}


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("name", ["one round", "three", "both sides", "around"])
def test_equals_a_loop_over_pairs(name, kind):
    torch.manual_seed(0)
    spec = SPECS[name]
    layer, x = spec.build(WIDTH), torch.randn(1, 11, WIDTH) * 2
    context = packed([[11]], 11, kind)
    q, v = (part(x).unflatten(-1, (2, -1)) for part in (layer.query_key, layer.value))
    factors = hashing.sizes(spec.buckets, 12, spec.chunk)
    turn = hashing.rotations((2, WIDTH // 2, spec.rounds, sum(factors) // 2), None, 0, q)
    buckets = hashing.hashed(q.detach(), turn, factors)
    seen = visible(context.query, context.memory)[0]
    heads = [by_hand(q[0, :, h], v[0, :, h], buckets[0, h], spec, seen) for h in range(2)]
    expected = layer.out(torch.cat(heads, -1))
    torch.testing.assert_close(layer(x, None, context)[0][0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", SPECS)
def test_equals_its_dense_definition_and_so_do_its_gradients(name, rows, kind, monkeypatch):
    monkeypatch.setattr(ring, "PIECE", 100)  # several pieces, the last of them shorter
    torch.manual_seed(0)
    layer, (lengths, width) = SPECS[name].build(WIDTH), ROWS[rows]
    x = torch.randn(2, width, WIDTH, requires_grad=True)
    weight, outs, gradients = torch.randn(2, width, WIDTH), [], []
    for backend in ("auto", "dense"):
        out, _ = layer(x, None, packed(lengths, width, kind, backend=backend))
        outs.append(out)
        gradients.append(torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()]))
    torch.testing.assert_close(*outs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(*gradients, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_differences(name):
    """Under one order, which a step must not change."""
    torch.manual_seed(0)
    layer, context = SPECS[name].build(WIDTH), packed([[3, 7]], 10, "causal")
    x, way = torch.randn(1, 10, WIDTH), torch.randn(1, 10, WIDTH)
    moved = x.clone().requires_grad_()
    layer(moved, None, context)[0].square().sum().backward()
    assert moved.grad is not None
    order = {}
    held = context.replace(replay=order)
    with torch.no_grad():
        layer(x, None, held)
        step = 1e-2
        above, below = (layer(x + sign * step * way, None, held)[0].square().sum() for sign in (1, -1))
    torch.testing.assert_close((above - below) / (2 * step), (moved.grad * way).sum(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("kind", ["full", "causal"])
def test_one_chunk_is_all_pairs(kind):
    """Hashing into one chunk that holds everything, no hashing at all, and attention with shared q and k agree."""
    torch.manual_seed(0)
    layer = LSH(2, chunk=16, before=0, rounds=1, buckets=2).build(WIDTH)
    x, context = torch.randn(2, 16, WIDTH), packed([[16], [16]], 16, kind)
    whole = layer(x, None, context)[0]
    q, v = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in (layer.query_key, layer.value))
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).transpose(-1, -2)
    scores.diagonal(dim1=-2, dim2=-1).fill_(-1e5)
    weights = scores.masked_fill(~context.mask(), -math.inf).softmax(-1)
    expected = layer.out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(whole, expected, atol=1e-5, rtol=1e-5)
    order = layer._order(layer.query_key(x).unflatten(-1, (2, -1)), context)
    hashed = ring.attend(
        *(t if t is None else t.transpose(1, 2) for t in (q, None, v)),
        ring.Ring.make(order, 16, 0, 0, context),
        context,
        0.0,
    )
    torch.testing.assert_close(layer.out(hashed.flatten(2)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("name", SPECS)
def test_no_output_depends_on_what_it_may_not_see(name, rows, kind):
    torch.manual_seed(0)
    layer, (lengths, width) = SPECS[name].build(WIDTH), ROWS[rows]
    context, x = packed(lengths, width, kind), torch.randn(2, width, WIDTH, requires_grad=True)
    out, _ = layer(x, None, context)
    seen = visible(context.query, context.memory) | torch.eye(width, dtype=torch.bool)
    weights, reached = torch.randn(WIDTH), 0
    for row in range(2):
        for i in range(width):
            (gradient,) = torch.autograd.grad((out[row, i] * weights).sum(), x, retain_graph=True)
            touched = gradient.abs().sum(-1) > 0
            assert not bool(touched[1 - row].any())
            assert not bool(touched[row][~seen[row, i]].any())
            reached += int(touched.sum())
    assert reached > 3 * width


def test_a_row_that_sees_only_itself_gives_its_value_whatever_the_rounds():
    torch.manual_seed(0)
    layer = LSH(2, chunk=4, rounds=8, buckets=4).build(WIDTH)
    x = torch.randn(1, 11, WIDTH, requires_grad=True)
    out, _ = layer(x, None, packed([[11]], 11, "causal"))
    expected = layer.out(layer.value(x))[:, 0]
    torch.testing.assert_close(out[:, 0], expected, atol=1e-6, rtol=1e-6)
    pairs = [
        torch.autograd.grad(each.sum(), layer.value.weight, retain_graph=True)[0] for each in (out[:, 0], expected)
    ]
    torch.testing.assert_close(*pairs, atol=1e-5, rtol=1e-5)


def test_a_second_computation_repeats_the_choice(monkeypatch):
    """Rounding changes a bucket here and there; a pass that is computed twice hashes once a layer."""
    calls = []
    whole = hashing.hashed
    monkeypatch.setattr(hashing, "hashed", lambda *given: calls.append(1) or whole(*given))
    torch.manual_seed(0)
    stack = Stack(3, Block(LSH(2, chunk=4, rounds=2), FeedForward(16), dropout=0.0)).build(WIDTH)
    x, replay = torch.randn(1, 16, WIDTH), {}
    context = packed([[16]], 16, key=DropoutKey.make(3, rows=range(1)), replay=replay)
    first = stack(x, context).last
    assert len(calls) == len(replay) == 3
    second = stack(x + 1e-4, context.replace(scratch={})).last
    assert len(calls) == 3
    torch.testing.assert_close(first, second, atol=1e-2, rtol=0)
    stack(x, context.replace(replay=None, scratch={}))
    assert len(calls) == 6


def orders(layer, x, key=None, lengths=None):
    rows = lengths or [[x.shape[1]]] * len(x)
    context = packed(rows, x.shape[1], key=key)
    return layer._order(layer.query_key(x).unflatten(-1, (layer.heads, -1)), context)


def test_turns_are_drawn_by_step_and_layer_and_repeat_without_a_key():
    torch.manual_seed(0)
    layer, x = LSH(2, chunk=4).build(WIDTH), torch.randn(3, 32, WIDTH)
    assert torch.equal(orders(layer, x), orders(layer, x))
    key = DropoutKey.make(1, 2, rows=range(3))
    same, others = orders(layer, x, key), (key.at("deeper"), DropoutKey.make(1, 3, rows=range(3)), None)
    assert torch.equal(same, orders(layer, x, key))
    assert all(not torch.equal(same, orders(layer, x, each)) for each in others)
    one = DropoutKey.make(1, 2, rows=range(2, 3))  # the same row of the same step in another micro-batch
    assert torch.equal(same[2:], orders(layer, x[2:], one))
    before, layer.seed = orders(layer, x), 1
    assert not torch.equal(orders(layer, x), before)


def test_tokens_stand_by_document_bucket_and_position():
    torch.manual_seed(0)
    layer, x = LSH(2, chunk=4, buckets=4).build(WIDTH), torch.randn(1, 18, WIDTH)
    (order,) = orders(layer, x, lengths=[[5, 7]])
    q = layer.query_key(x).unflatten(-1, (2, -1))
    buckets = hashing.hashed(q, hashing.rotations((2, WIDTH // 2, 1, 2), None, 0, q), (4,))
    for head in range(2):
        document = lambda t: 0 if t < 5 else 1 if t < 12 else 2 if t < 18 else 3  # noqa: E731
        bucket = lambda t, head=head: int(buckets[0, head, 0, t]) if t < 18 else 0  # noqa: E731
        expected = sorted(range(20), key=lambda t: (document(t), bucket(t), t))
        assert order[head, 0].tolist() == expected


@pytest.mark.parametrize(
    ("length", "chunk", "expected"),
    [(512, 64, (16,)), (4096, 64, (128,)), (8192, 64, (16, 16)), (65536, 64, (32, 64)), (24, 8, (4,)), (16, 8, (4,))],
)
def test_buckets_follow_the_length(length, chunk, expected):
    assert hashing.sizes(None, length, chunk) == expected


def test_vectors_that_point_the_same_way_share_a_bucket_and_opposite_ones_never():
    torch.manual_seed(0)
    x = torch.randn(1, 200, 1, 16)
    turn = hashing.rotations((1, 16, 50, 4), None, 0, x)
    buckets = hashing.hashed(x, turn, (8,))
    assert torch.equal(buckets, hashing.hashed(3 * x, turn, (8,)))
    assert torch.equal((buckets + 4) % 8, hashing.hashed(-x, turn, (8,)))
    near = (buckets == hashing.hashed(x + 0.1 * torch.randn_like(x), turn, (8,))).float().mean()
    far = (buckets == hashing.hashed(torch.randn_like(x), turn, (8,))).float().mean()
    assert near > 0.8
    assert abs(float(far) - 1 / 8) < 0.02


def test_dropout_is_keyed_unbiased_and_has_the_gradient_of_what_is_left():
    torch.manual_seed(0)
    plain, layer = (LSH(2, chunk=4, rounds=3, dropout=rate).build(WIDTH) for rate in (0.0, 0.3))
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(2, 11, WIDTH)
    order = plain._order(plain.query_key(x).unflatten(-1, (2, -1)), packed([[11], [11]], 11))
    replay = {plain: order, layer: order}
    view = lambda key: packed([[11], [11]], 11, "causal", key=key, replay=replay)  # noqa: E731
    total, expected = torch.zeros_like(x), plain(x, None, view(None))[0]
    for step in range(300):
        out, _ = layer(x, None, view(DropoutKey.make(step, rows=range(2))))
        total += out
    torch.testing.assert_close(total / 300, expected, atol=0.08, rtol=0)
    key = DropoutKey.make(7, rows=range(2))
    alone = packed([[11]], 11, "causal", key=DropoutKey.make(7, rows=range(1, 2))).replace(replay={layer: order[1:]})
    torch.testing.assert_close(layer(x[1:], None, alone)[0], layer(x, None, view(key))[0][1:], atol=1e-6, rtol=1e-5)
    way, moved = torch.randn_like(x), x.clone().requires_grad_()
    layer(moved, None, view(key))[0].square().sum().backward()
    assert moved.grad is not None
    above, below = (layer(x + sign * 1e-2 * way, None, view(key))[0].square().sum() for sign in (1, -1))
    torch.testing.assert_close((above - below) / 2e-2, (moved.grad * way).sum(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("name", ["three", "local"])
def test_taps_give_the_weights(name):
    torch.manual_seed(0)
    capture = AttentionCapture()
    SPECS[name].build(WIDTH)(torch.randn(1, 11, WIDTH), None, packed([[4, 7]], 11, capture=capture))
    (weights,) = capture.captured.values()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not bool(weights[0, :, :4, 4:].any())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (LSH(0), "heads = 0"),
        (LSH(2, chunk=0), "chunk = 0"),
        (LSH(2, rounds=0), "rounds = 0: 1 or more"),
        (LSH(2, buckets=5), "buckets = 5: even numbers"),
        (LSH(2, buckets=(4, 3)), "even numbers"),
        (LSH(2, before=-1), "before = -1"),
        (LSH(2, dropout=1.0), "dropout"),
        (LocalAttention(2, after=-1), "after = -1"),
        (Stack(2, Block(LSH(2), FeedForward(8)), memory=4), "LSH takes no memory"),
        (Stack(2, Block(LocalAttention(2), FeedForward(8)), memory=4), "LocalAttention takes no memory"),
        (TwoStream(2, Block(LSH(2), FeedForward(8))), "LSH"),
        (Block(Attention(2), FeedForward(8), cross=LSH(2)), "cross = LSH: it takes no rows but its own"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    with pytest.raises(RecipeError, match=message):
        check(spec, "here")


def test_heads_need_not_share_the_width():
    assert sum(p.numel() for p in LSH(3, head_width=7).build(10).parameters()) == 3 * 21 * 10
    with pytest.raises(RecipeError, match="width 10 is not divisible"):
        LSH(3).fit("here", 10)
    LSH(3, head_width=7).fit("here", 10)
    assert Attention(2).build(8).out.bias is not None
    assert LSH(2).build(8).out.bias is None


def test_a_cost_is_that_of_chunks():
    """On the meta device, which has shapes only: four times the length, about four times the products."""
    from torch.utils.flop_counter import FlopCounterMode

    results = []
    for length in (256, 1024):
        with torch.device("meta"):
            layer, x = LSH(2, chunk=16, rounds=2).build(WIDTH), torch.empty(1, length, WIDTH)
        context = packed([[length]], length, "causal", backend="dense")
        side = context.query.each(lambda value: value.to("meta"))
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer(x, None, context.replace(query=side, memory=side))
        results.append(counter.get_total_flops())
    assert 3.5 < results[1] / results[0] < 5
