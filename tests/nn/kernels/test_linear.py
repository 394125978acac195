import pytest
import torch
from torch.nn import functional as F

from clozeworks.nn.kernels import linear as module
from clozeworks.nn.kernels.linear import Linear, linear


@pytest.fixture(params=[False, True], ids=["torch's way", "the other"])
def way(request, monkeypatch):
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this torch has one library only")
    monkeypatch.setattr(module, "other_is_faster", lambda: request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", [(16,), (7, 16), (3, 5, 16), (2, 3, 4, 16), (0, 16), (2, 0, 16)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_product_and_so_are_its_gradients(shape, bias):
    torch.manual_seed(0)
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(8, 16, requires_grad=True)
    given = [x, weight, torch.randn(8, requires_grad=True)] if bias else [x, weight]
    actual = linear(x, weight, given[2] if bias else None)
    expected = F.linear(x, weight, given[2] if bias else None)
    torch.testing.assert_close(actual, expected)
    g = torch.randn_like(expected)
    for mine, other in zip(torch.autograd.grad(actual, given, g), torch.autograd.grad(expected, given, g), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.usefixtures("way")
def test_what_needs_no_gradient_gets_none():
    layer = Linear(4, 3).requires_grad_(False)
    x = torch.randn(2, 4, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None


def test_other_types_devices_and_compilers_take_torchs_way(monkeypatch):
    monkeypatch.setattr(module, "other_is_faster", lambda: True)
    monkeypatch.setattr(module, "_product", lambda *_: pytest.fail("the other way was taken"))
    weight = torch.randn(3, 4)
    assert linear(torch.randn(2, 4, dtype=torch.float64), weight.double(), None).dtype == torch.float64
    assert linear(torch.randn(2, 4, device="meta"), weight.to("meta"), None).shape == (2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.randn(2, 4), weight, None).dtype == torch.bfloat16
