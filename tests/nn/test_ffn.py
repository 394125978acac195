"""A feed-forward part that transforms some positions at a time: the same vectors and gradients, less alive."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check, from_dict, to_dict
from clozeworks.nn.ffn import FeedForward, FeedForwardLayer

WIDTH, INNER, LENGTH = 12, 48, 11


def pair(chunk: int, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> tuple[FeedForwardLayer, ...]:
    torch.manual_seed(0)
    whole = FeedForward(INNER, dropout=dropout).build(WIDTH).to(dtype)
    pieces = FeedForward(INNER, dropout=dropout, chunk=chunk).build(WIDTH).to(dtype)
    pieces.load_state_dict(whole.state_dict())
    return whole, pieces


def passed(module: FeedForwardLayer, x: Tensor, key: DropoutKey | None = None) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = module(x, key)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])]


@pytest.mark.parametrize("chunk", [1, 3, 10, 11, 64])
@pytest.mark.parametrize("shape", [(2, LENGTH, WIDTH), (LENGTH, WIDTH)])
def test_any_chunk_gives_the_same(chunk, shape):
    whole, pieces = pair(chunk)
    x = torch.randn(shape, dtype=torch.float64)
    for left, right in zip(passed(whole, x), passed(pieces, x), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(pieces(x), whole(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [None, range(5, 7)])
def test_each_token_drops_what_it_would_among_all(rows):
    whole, pieces = pair(4, dropout=0.4)
    x, key = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64), DropoutKey.make(3, rows=rows)
    for left, right in zip(passed(whole, x, key), passed(pieces, x, key), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    chosen = torch.tensor([1, 4, 5, 9, 15, 20, 21])  # tokens that have been picked from among all
    picked = key.tokens(chosen, 2 * LENGTH)
    for module in (whole, pieces):
        torch.testing.assert_close(module(x.flatten(0, 1)[chosen], picked), whole(x, key).flatten(0, 1)[chosen])


def test_bfloat16_is_computed_again_as_it_was():
    whole, pieces = pair(4, dtype=torch.float32)
    x = torch.randn(2, LENGTH, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        results = [module(x) for module in (whole, pieces)]
    torch.testing.assert_close(*results)
    grads = [
        torch.autograd.grad(y.float().sum(), list(m.parameters()))
        for y, m in zip(results, (whole, pieces), strict=True)
    ]
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right, rtol=0.02, atol=0.02)


class Widest(TorchDispatchMode):
    """The most numbers of the inner units that one operation gives."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.shape and out.shape[-1] == INNER and out.ndim > 1:
            self.most = max(self.most, out.numel() // INNER)
        return out


def test_no_more_than_a_chunk_of_inner_units_is_alive_on_either_way():
    whole, pieces = pair(4)
    x, tokens = torch.randn(2, 64, WIDTH, dtype=torch.float64, requires_grad=True), []
    for module in (whole, pieces):
        sizes: list[int] = []
        with (
            Widest() as widest,
            torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.shape[-1]) or t, lambda t: t),
        ):
            y = module(x)
        assert (INNER in sizes) == (module is whole)  # of the inner units nothing is kept
        with Widest() as back:
            y.sum().backward()
        tokens.append((widest.most, max(back.most, 1)))
    assert tokens[0] == (128, 128)
    assert max(tokens[1]) == WIDTH  # a chunk has 8 of them, and a matrix as many rows as the width


def test_chunks_are_written_and_nonsense_is_refused():
    assert to_dict(FeedForward(8))["chunk"] is None
    assert from_dict(to_dict(FeedForward(8, chunk=3))) == FeedForward(8, chunk=3)
    with pytest.raises(RecipeError, match=r"ffn\.chunk = 0: 1 or more is needed; None is usual"):
        check(FeedForward(8, chunk=0), "ffn")
