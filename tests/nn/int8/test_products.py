"""int8 arithmetic: sums are exact, what is fused equals torch one operation at a time, and fp32 stays where it must."""

import math

import pytest
import torch
from torch.nn import functional as F

from clozeworks.core.token_info import DocumentLayout
from clozeworks.nn.int8 import products
from clozeworks.nn.int8.products import (
    Int8Weights,
    attention,
    dequantize,
    feed_forward,
    linear,
    multiply,
    quantize_rows,
)


@pytest.fixture(autouse=True)
def int8(monkeypatch):
    """Whatever this processor has."""
    monkeypatch.setenv(products.CHOICE, "1")


@pytest.fixture(params=[True, False], ids=["fused", "torch"])
def kernels(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(products, "fused", lambda: None)
    return request.param


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(out: int, wide: int, seed: int = 0, bias: bool = True) -> Int8Weights:
    quantized, scale = quantize_rows(matrix(out, wide, seed=seed) / math.sqrt(wide))
    return Int8Weights(quantized, scale, matrix(out, seed=seed + 1) if bias else None)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 64), (33, 129), (64, 384)])
def test_rows_are_within_half_a_step_and_reach_127(kernels, shape):
    x = matrix(*shape)
    quantized, scale = quantize_rows(x)
    assert quantized.dtype == torch.int8
    assert (quantized.abs().amax(1) == 127).all()
    assert ((products.spread(quantized, scale) - x).abs() <= scale[:, None] * (0.5 + 1e-4)).all()


def test_fused_and_plain_rows_are_the_same_bits(monkeypatch):
    x = matrix(40, 100)
    x[3], x[4, 1:] = 0, 0
    one = quantize_rows(x)
    monkeypatch.setattr(products, "fused", lambda: None)
    two = quantize_rows(x)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert one[1][3] == 1
    assert not one[0][3].any()


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 16, 3), (17, 31, 5), (128, 384, 96), (3, 4096, 8)])
def test_sums_are_exact(shape):
    rows, wide, out = shape
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-127, 128, (n, wide), generator=generator, dtype=torch.int8) for n in (rows, out))
    assert torch.equal(multiply(a, b), (a.long() @ b.long().t()).int())
    full = torch.full((rows, wide), 127, dtype=torch.int8)
    assert (multiply(full, -full[:1].expand(out, -1)) == -127 * 127 * wide).all()


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_dequantized_as_the_formula_says(kernels, bias):
    own = weights(24, 48, bias=bias)
    tokens, scale = quantize_rows(matrix(9, 48, seed=5))
    sums = multiply(tokens, own.quantized)
    expected = sums.double() * scale.double()[:, None] * own.scale.double() + (own.bias if bias else torch.zeros(24))
    torch.testing.assert_close(dequantize(sums, scale, own).double(), expected, rtol=1e-6, atol=1e-6)


def test_the_error_of_a_linear_part_is_bounded(kernels):
    own, x = weights(96, 256), matrix(2, 30, 256, seed=2)
    exact = F.linear(x, own.spread(), own.bias)
    steps = x.abs().amax(-1, keepdim=True) / 254  # half a step of each token
    bound = steps * own.spread().abs().sum(1) + 1e-4
    assert ((linear(x, own) - exact).abs() <= bound).all()
    assert not torch.equal(linear(x, own), exact), "nothing was quantized"


def test_the_feed_forward_part_equals_torch_step_by_step(monkeypatch):
    up, down, x = weights(200, 64), weights(64, 200, seed=3), matrix(3, 11, 64, seed=9) * 3
    fused = feed_forward(x, up, down)
    monkeypatch.setattr(products, "fused", lambda: None)
    assert feed_forward(x, up, down) is None
    plain = linear(F.gelu(linear(x, up)), down)
    assert fused is not None
    step = F.gelu(linear(x, up)).abs().amax(-1, keepdim=True) / 127
    assert ((fused - plain).abs() <= step * down.spread().abs().amax(1) * 3 + 1e-5).all(), "more than a few roundings"
    assert (fused - plain).abs().mean() < 1e-3 * plain.abs().mean()


@pytest.mark.parametrize("lengths", [[1], [3, 1, 2], [16, 17, 15], [40, 33, 64, 5]])
@pytest.mark.parametrize(("width", "heads"), [(32, 4), (48, 2), (96, 1), (24, 3)])
def test_attention_equals_torch_document_by_document(lengths, width, heads):
    parts = [weights(width, width, seed=n) for n in range(4)]
    x = matrix(1, sum(lengths), width, seed=11)
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    layout = DocumentLayout(tuple(starts), tuple(lengths), 1, sum(lengths))
    fused = attention(x, tuple(parts[:3]), parts[3], heads, layout)
    assert fused is not None
    q, k, v = (linear(x, part).unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts[:3])
    cut = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    mixed = [F.scaled_dot_product_attention(q[:, :, own], k[:, :, own], v[:, :, own]) for own in cut]
    inner = torch.cat(mixed, 2).transpose(1, 2).flatten(2)
    plain = linear(inner, parts[3])
    step = inner.abs().amax(-1, keepdim=True) / 127
    assert ((fused - plain).abs() <= step * parts[3].spread().abs().amax(1) * 3 + 1e-5).all()
    assert (fused - plain).abs().mean() < 1e-3 * plain.abs().mean()


def test_numbers_that_are_none_stay_visible():
    own, x = weights(8, 16), matrix(2, 16)
    x[1, 3] = math.nan
    out = linear(x, own)
    assert out[0].isfinite().all()
    assert out[1].isnan().all()


@pytest.mark.parametrize("where", ["no gain", "bf16", "gradient", "autocast", "nothing"])
def test_where_int8_does_not_go_the_weights_are_spread_out(where, monkeypatch):
    own, x = weights(8, 16), matrix(4, 16)
    if where == "no gain":
        monkeypatch.setenv(products.CHOICE, "0")
    if where == "bf16":
        x = x.bfloat16()
        own = Int8Weights(own.quantized, own.scale.bfloat16(), None)
    x = x[:0] if where == "nothing" else x.requires_grad_(where == "gradient")
    with torch.autocast("cpu", enabled=where == "autocast"):
        assert not products.takes(x)
        out = linear(x, own)
        assert torch.equal(out, F.linear(x, own.spread().to(x.dtype), own.bias))
    if where == "gradient":
        out.sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, own.spread().sum(0).expand(4, -1))


def test_gelu_and_exp_are_what_they_are_called():
    fused = pytest.importorskip("clozeworks.nn.kernels.int8_fused")
    for value in torch.linspace(-9, 9, 301).tolist():
        exact = value * 0.5 * (1 + math.erf(value / math.sqrt(2)))
        assert abs(float(fused.gelu(fused._F(value))) - exact) < 1e-5
        if value <= 0:
            assert abs(float(fused.exp(fused._F(8 * value))) / math.exp(8 * value) - 1) < 1e-5
