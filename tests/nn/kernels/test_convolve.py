"""Convolution in blocks is convolution by its definition."""

import pytest
import torch

from clozeworks.nn.kernels.convolve import blocked, dense


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 70])
@pytest.mark.parametrize("kernel", [1, 2, 3, 7, 23, 31])
def test_blocks_equal_the_definition_forward_and_backward(length: int, kernel: int):
    torch.manual_seed(0)
    x = torch.randn(2, length + kernel - 1, 3, 5, dtype=torch.double, requires_grad=True)
    weights = torch.randn(2, length, 3, kernel, dtype=torch.double, requires_grad=True)
    given = torch.randn(2, length, 3, 5, dtype=torch.double)
    outs = [convolve(x, weights) for convolve in (dense, blocked)]
    torch.testing.assert_close(*outs)
    torch.testing.assert_close(*(torch.autograd.grad(out, (x, weights), given) for out in outs))


def test_the_definition_by_hand():
    x, weights = torch.randn(2, 9, 2, 3), torch.randn(2, 7, 2, 3)
    out = dense(x, weights)
    for place in range(7):
        expected = sum(weights[:, place, :, k, None] * x[:, place + k] for k in range(3))
        torch.testing.assert_close(out[:, place], expected)


def test_of_inputs_that_need_no_gradient_none_is_computed():
    x, weights = torch.randn(1, 5, 2, 3), torch.randn(1, 3, 2, 3, requires_grad=True)
    blocked(x, weights).sum().backward()
    assert x.grad is None
    assert weights.grad is not None
