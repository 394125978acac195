"""Attention in tiles equals the dense definition; what it drops and the gradient are checked by themselves."""

import pytest
import torch

from clozeworks.core.cache import KVCache
from clozeworks.core.context import AttentionCapture
from clozeworks.core.dropout import DropoutKey, keep
from clozeworks.nn.kernels import backends
from clozeworks.nn.kernels.tiled import Tiles, bands, tiled
from clozeworks.nn.mixers.attention import Attention
from tests.toys import packed

HEADS, SIZE = 2, 4
CONTEXTS = {
    "one": ([[1]], 1),
    "plain": ([[7], [7]], 7),
    "padded": ([[5], [2], [7]], 7),
    "packed": ([[3, 4, 17], [1, 2, 2], [24]], 24),
    "buckets": ([[16, 1, 17], [40], [3, 33]], 40),
    "bands": ([[130], [97, 20], [100, 30]], 130),
}


def triple(context, dtype=torch.float32):
    """q, k, v as the projections give them: heads beside each other in every row."""
    torch.manual_seed(0)
    rows, length = context.query.position.shape
    shape = (rows, length, HEADS, SIZE)
    return [torch.randn(shape, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_without_dropout_it_is_the_dense_definition(name, kind):
    lengths, width = CONTEXTS[name]
    context = packed(lengths, width, kind)
    q, k, v = triple(context)
    expected = backends.dense(q, KVCache(k, v), context)
    actual = tiled(q, KVCache(k, v), context, 0.1)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    g = torch.randn_like(expected)
    for mine, other in zip(
        torch.autograd.grad(actual, [q, k, v], g), torch.autograd.grad(expected, [q, k, v], g), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("name", ["padded", "packed", "bands"])
def test_the_gradient_under_dropout(name, kind):
    lengths, width = CONTEXTS[name]
    context = packed(lengths, width, kind, key=DropoutKey.make(3))
    assert torch.autograd.gradcheck(
        lambda q, k, v: tiled(q, KVCache(k, v), context, 0.3), triple(context, torch.float64), atol=1e-7, fast_mode=True
    )


def test_what_is_dropped_is_what_the_key_says():
    context = packed([[7], [7]], 7, key=DropoutKey.make(1))
    q, k, v = triple(context)
    weights = (q @ k.transpose(-1, -2) / SIZE**0.5).softmax(-1)
    key = context.at("weights").key
    assert key is not None
    mask = keep(key.within(torch.tensor([0, 7]), 14).seeds, None, key.site, weights, 0.4)
    torch.testing.assert_close(tiled(q, KVCache(k, v), context, 0.4), (weights * mask / 0.6) @ v)


def test_a_row_is_dropped_alike_whatever_is_beside_it():
    lengths = [[3, 4, 17], [1, 2, 21], [24]]
    whole = packed(lengths, 24, key=DropoutKey.make(2, rows=range(3)))
    q, k, v = triple(whole)
    result = tiled(q, KVCache(k, v), whole, 0.4)
    for row in range(3):
        alone = packed(lengths[row : row + 1], 24, key=DropoutKey.make(2, rows=range(row, row + 1)))
        a, b, c = (tensor[row : row + 1] for tensor in (q, k, v))
        torch.testing.assert_close(tiled(a, KVCache(b, c), alone, 0.4), result[row : row + 1])


def test_tiles_are_as_long_as_documents():
    context = packed([[16, 1, 17, 6]] * 8, 40)
    assert context.layout is not None
    groups = Tiles.make(context.layout, HEADS, False, torch.device("cpu")).groups
    assert sum(count * width for count, width, _ in groups) >= 8 * 40
    assert sum(count * width**2 for count, width, _ in groups) < 0.85 * 8 * 40**2


def test_bands_cover_a_tile_and_leave_out_what_comes_later():
    assert bands(16) == [(0, 16)]
    assert bands(127) == [(0, 64), (64, 127)]
    assert bands(130) == [(0, 64), (64, 130)]
    for width in (128, 512, 1024):
        cuts = bands(width)
        assert [begin for begin, _ in cuts] == [0] + [end for _, end in cuts[:-1]]
        assert sum((end - begin) * end for begin, end in cuts) <= 0.75 * width**2


def test_bands_drop_what_a_whole_tile_would(monkeypatch):
    context = packed([[130], [130]], 130, "causal", key=DropoutKey.make(5))
    q, k, v = triple(context)
    result = tiled(q, KVCache(k, v), context, 0.4)
    monkeypatch.setattr("clozeworks.nn.kernels.tiled.bands", lambda width: [(0, width)])
    torch.testing.assert_close(result, tiled(q, KVCache(k, v), context, 0.4))


def test_dropout_takes_tiles_where_it_can(monkeypatch):
    taken = []
    monkeypatch.setattr(backends, "tiled", lambda *given: taken.append("tiled") or tiled(*given))
    monkeypatch.setattr(backends, "dense", lambda *given: taken.append("dense") or given[0])
    q, k, v = triple(packed([[3, 4]], 7))
    for wanted, more in (
        ("tiled", {"key": DropoutKey.make(1)}),
        ("dense", {"key": DropoutKey.make(1), "capture": AttentionCapture()}),
        ("dense", {"key": DropoutKey.make(1), "backend": "dense"}),
        ("dense", {"key": DropoutKey.make(1), "offset": None}),
    ):
        context = packed([[3, 4]], 7).replace(**more)
        backends.attend(q, KVCache(k, v), context, rate=0.1)
        assert taken.pop() == wanted
        assert not taken
    backends.attend(q, KVCache(k, v), packed([[3, 4]], 7), rate=0.1)
    assert not taken  # without a key nothing is dropped, and torch's kernel is faster


def test_under_autocast_it_stays_near_fp32():
    torch.manual_seed(0)
    layer = Attention(2, dropout=0.2).build(16)
    context = packed([[3, 4, 17], [1, 2, 2], [24]], 24, key=DropoutKey.make(2))
    x = torch.randn(3, 24, 16, requires_grad=True)
    exact = layer(x, None, context)[0]
    with torch.autocast("cpu", torch.bfloat16):
        near = layer(x, None, context)[0]
    torch.testing.assert_close(near.float(), exact, atol=0.03, rtol=0.05)
    (near.float() ** 2).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's tracer, about any autograd.Function
def test_a_compiled_model_takes_the_dense_path():
    context = packed([[3, 4]], 7, key=DropoutKey.make(1))
    q, k, v = (tensor.detach() for tensor in triple(context))
    compiled = torch.compile(
        lambda q, k, v: backends.attend(q, KVCache(k, v), packed([[3, 4]], 7, key=context.key), rate=0.1),
        backend="eager",
    )
    torch.testing.assert_close(compiled(q, k, v), backends.dense(q, KVCache(k, v), context, None, 0.1))
