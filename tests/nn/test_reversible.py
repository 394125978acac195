"""Against ordinary autograd, which keeps everything; and by what is kept."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from clozeworks.core.context import AttentionCapture, Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible, ReversibleLayer
from clozeworks.nn.stack import Share
from tests.nn.mixers.test_mixers import MIXERS, WIDTH
from tests.toys import packed

LENGTHS = [[3, 4], [7]]


def stack(depth: int = 4, mixer=None, **more: Any) -> Reversible:
    fields = {"norm": LayerNorm(), **{name: more.pop(name) for name in ("share", "dropout", "memory") if name in more}}
    given = {"place": "pre", "dropout": more.pop("rate", 0.0), **more}
    return Reversible(depth, Block(mixer or Attention(4), **{"ffn": FeedForward(40), **given}), **fields)


def built(spec: Reversible, dtype: torch.dtype = torch.float32, width: int = WIDTH) -> ReversibleLayer:
    torch.manual_seed(0)
    module = spec.build(width).to(dtype)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return module


def both(module: ReversibleLayer, context: Context, x: Tensor, read=lambda last: last) -> list[list[Tensor]]:
    """The last vectors and all gradients, of the inverted stack and of the ordinary one."""
    weight = torch.linspace(-1, 1, 2 * x.shape[-1], dtype=x.dtype)  # a norm's outputs sum to nothing
    trained, results = [p for p in module.parameters() if p.requires_grad], []
    for module.inverts in (True, False):
        x = x.detach().requires_grad_()
        last = read(module(x, context.replace(scratch={})).last)
        loss = (last * weight).sum()  # a mixer may have weights for marked tokens alone, of which there are none
        results.append([last.detach(), *torch.autograd.grad(loss, [x, *trained], materialize_grads=True)])
    return results


def agree(results: list[list[Tensor]], tolerance: float) -> None:
    for inverted, ordinary in zip(*results, strict=True):
        assert inverted.dtype == ordinary.dtype
        assert float((inverted - ordinary).abs().max()) <= tolerance * max(1.0, float(ordinary.abs().max()))
    assert all(bool(each.any()) for each in results[0][:2])


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("share", [Share(), Share(1, 1), Share(2, None)])
def test_gradients_are_those_of_autograd(mixer, share):
    module = built(stack(4, MIXERS[mixer], share=share, dropout=0.2, rate=0.3), torch.float64)
    kind = "causal" if "causal" in MIXERS[mixer].honours else "full"
    context = packed(LENGTHS, 7, kind, key=DropoutKey.make(3, rows=range(2)))
    agree(both(module, context, torch.randn(2, 7, WIDTH, dtype=torch.float64)), 1e-9)


def test_twelve_layers_in_single_precision():
    torch.manual_seed(1)
    module = stack(12, dropout=0.1, rate=0.1).build(WIDTH)
    context = packed([[40, 24]] * 2, 64, key=DropoutKey.make(3, rows=range(2)))
    agree(both(module, context, torch.randn(2, 64, WIDTH)), 1e-5)


def test_the_definition():
    module = built(stack(2))
    context, x = packed(LENGTHS, 7), torch.randn(2, 7, WIDTH)
    assert module.norm is not None
    one = two = x
    for block in module.blocks:
        one = one + block.mixer(block.mixer_norm(two), None, context)[0]
        two = two + block.ffn(block.ffn_norm(one))
    torch.testing.assert_close(module(x, context).last, module.norm(torch.cat([one, two], -1)))


def test_what_is_dropped_differs_from_layer_to_layer_and_is_the_same_on_the_way_back():
    module = built(stack(3, Attention(4, dropout=0.4), ffn=FeedForward(40, dropout=0.4), rate=0.4), torch.float64)
    context = packed(LENGTHS, 7, key=DropoutKey.make(5, rows=range(2)))
    x = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    agree(both(module, context, x), 1e-9)
    assert not torch.allclose(module(x, context).last, module(x, packed(LENGTHS, 7)).last)


@pytest.mark.parametrize("places", [[0, 3, 9], list(range(12)), []])
def test_vectors_that_are_read_are_those_of_all(places):
    module = built(stack(3, dropout=0.2, rate=0.3), torch.float64)
    chosen = torch.tensor(places, dtype=torch.long)
    key, x = DropoutKey.make(3, rows=range(2)), torch.randn(2, 7, WIDTH, dtype=torch.float64)
    read = lambda last: last.flatten(0, 1)[chosen]  # noqa: E731
    some = both(module, packed(LENGTHS, 7, key=key, positions=chosen), x, read)
    every = both(module, packed(LENGTHS, 7, key=key), x, read)
    for left, right in ((some[0], some[1]), (some[0], every[1])):
        for a, b in zip(left, right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    unread = module(x, packed(LENGTHS, 7, positions=chosen)).last.isnan().all(-1)
    assert int(unread.sum()) == (14 - len(places) if len(places) <= 7 else 0)


def test_a_frozen_part_and_an_input_without_gradient():
    module = built(stack(3), torch.float64)
    module.blocks[1].requires_grad_(False)
    module.blocks[0].ffn.requires_grad_(False)
    context, x = packed(LENGTHS, 7), torch.randn(2, 7, WIDTH, dtype=torch.float64)
    agree(both(module, context, x), 1e-9)
    module.inverts = True
    module(x, context).last[..., 0].sum().backward()  # x is no leaf that wants one
    grads = {name: parameter.grad is not None for name, parameter in module.named_parameters()}
    assert grads == {name: parameter.requires_grad for name, parameter in module.named_parameters()}


def test_two_passes_accumulate():
    module = built(stack(3), torch.float64)
    context, x = packed(LENGTHS, 7), torch.randn(2, 7, WIDTH, dtype=torch.float64)
    sums = []
    for module.inverts in (True, False):
        module.zero_grad()
        for rows in (x, x.flip(0)):
            module(rows, context.replace(scratch={})).last[..., :3].sum().backward()
        sums.append([parameter.grad for parameter in module.parameters()])
    for inverted, ordinary in zip(*sums, strict=True):
        torch.testing.assert_close(inverted, ordinary, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mixer", [Attention(4), LSH(4, chunk=2), LocalAttention(4, chunk=2)])
@pytest.mark.parametrize("outside", [False, True])
def test_bfloat16_is_computed_again_as_it_was(outside, mixer):
    """The way back may begin outside of autocast, or inside, where copies of weights without gradients could linger."""
    if not outside and not isinstance(mixer, Attention):
        pytest.skip("has its way back written out, in single precision")
    module = built(stack(4, mixer, dropout=0.1, rate=0.1))
    context, x = packed(LENGTHS, 7, key=DropoutKey.make(3, rows=range(2))), torch.randn(2, 7, WIDTH)
    weight, results = torch.linspace(-1, 1, 2 * WIDTH), []
    for module.inverts in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            last = module(x, context.replace(scratch={})).last
            results.append([last.detach()])
            if not outside:
                results[-1] += torch.autograd.grad((last * weight).sum(), list(module.parameters()))
        if outside:
            results[-1] += torch.autograd.grad((last * weight).sum(), list(module.parameters()))
    names = ["last", *(name for name, _ in module.named_parameters())]
    for name, inverted, ordinary in zip(names, *results, strict=True):
        assert inverted.dtype == torch.float32
        gap = float((inverted - ordinary).norm() / ordinary.norm().clamp_min(1e-6))
        assert gap < (1e-6 if name == "last" else 0.05), name


def test_discrete_choices_are_made_once_a_layer_and_pass():
    class Choosing(type(Attention(4).build(WIDTH))):
        made = 0

        def forward(self, query, memory, context):
            def choose():
                Choosing.made += 1
                return torch.rand(query.shape[:2]) < 0.5

            chosen = context.decide(self, choose)
            mixed, carry = super().forward(query, memory, context)
            return mixed * chosen[..., None], carry

    module = built(stack(4, share=Share(1, 1)))
    for block in module.blocks:
        block.mixer.__class__ = Choosing
    context, x = packed(LENGTHS, 7), torch.randn(2, 7, WIDTH, requires_grad=True)
    for passes in (1, 2):
        module(x, context).last[..., 0].sum().backward()
        assert Choosing.made == 4 * passes
    module(x, context).last[..., 0].sum().backward(retain_graph=True)
    assert Choosing.made == 12


def kept(module: ReversibleLayer, x: Tensor, context: Context) -> int:
    """Bytes of the storages that autograd saves, without those of parameters."""
    results: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        results[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        last = module(x, context).last
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    assert last.requires_grad
    return sum(size for pointer, size in results.items() if pointer not in own)


@pytest.mark.parametrize("places", [None, torch.arange(0, 256, 8)])
def test_what_is_kept_does_not_grow_with_depth(places):
    x, sizes, ordinary = torch.randn(2, 128, WIDTH, requires_grad=True), [], []
    for depth in (2, 4, 8, 16):
        module = stack(depth).build(WIDTH)
        for module.inverts, into in ((True, sizes), (False, ordinary)):
            into.append(kept(module, x, packed([[128]] * 2, 128, positions=places)))
    assert len(set(sizes)) == 1
    assert ordinary[3] > 7 * ordinary[0]
    if places is None:
        assert sizes[0] == 4 * 2 * 128 * (2 * WIDTH + 2)  # the last pair, mean and deviation of the norm


def test_layers_come_with_gradients_and_taps_with_weights():
    module = built(stack(3))
    context, x = packed(LENGTHS, 7), torch.randn(2, 7, WIDTH, requires_grad=True)
    plain = module(x, context).last
    hidden = module(x, context, layers=True)
    assert [tuple(each.shape) for each in hidden.layers] == [(2, 7, 2 * WIDTH)] * 4
    assert module.norm is not None
    torch.testing.assert_close(module.norm(hidden.layers[-1]), plain)
    assert bool(torch.autograd.grad(hidden.layers[1][..., 0].sum(), x)[0].any())
    capture = AttentionCapture(frozenset({"weights"}), frozenset({1}))
    module(x, context.replace(capture=capture, scratch={}))
    assert list(capture.captured) == ["weights.1"]
    assert capture.captured["weights.1"].requires_grad


def test_a_cached_stack_equals_the_whole():
    module = built(stack(3))
    x = torch.randn(2, 6, WIDTH)
    whole = packed([[6], [6]], 6, "causal")
    with torch.no_grad():
        expected, past, out = module(x, whole).last, None, []
        for at in range(6):
            side = whole.query.each(lambda v, at=at: v[:, at : at + 1])
            hidden = module(x[:, at : at + 1], Context.make(side, side, "causal", past=past, carry=True))
            past = hidden.memory
            out.append(hidden.last)
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)


REFUSED = [
    ({"place": "post"}, r"stack\.block\.place = post: a norm behind the sum cannot be computed back; use \"pre\""),
    ({"ffn": None}, r"stack\.block\.ffn = None: the second stream is made by it"),
    ({"residual": False}, r"stack\.block\.residual = False: what a branch is added to is computed back"),
    ({"cross": Attention(2)}, r"stack\.block\.cross = Attention: a third branch"),
    ({"memory": 4}, r"stack\.memory = 4: rows of every layer would have to be kept"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_computed_back_is_refused(change, message):
    with pytest.raises(RecipeError, match=message):
        check(stack(**change), "stack")
    check(stack(), "stack")


def test_every_block_of_several_is_looked_at():
    good = stack().block
    assert isinstance(good, Block)
    with pytest.raises(RecipeError, match="a norm behind the sum"):
        check(Reversible(2, (good, dataclasses.replace(good, place="post"))), "stack")
