"""Layers that share weights, for every mixer and every kind of stack: the same as layers with copies of them."""

import dataclasses
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import clozeworks as cw
from clozeworks.core.context import Context, Source
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.bias.adaptive_span import AdaptiveSpanLayer
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lstm import LSTMLayer
from clozeworks.nn.mixers.ngram import NgramLayer
from clozeworks.nn.mixers.recurrent import RecurrentLayer
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.stack import Share, Stack, StackLayer
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.recipe import Recipe, build, count_parameters
from tests.nn.mixers.test_mixers import MIXERS, WIDTH, Distance
from tests.toys import packed

DEPTH, LENGTH = 6, 8
ONE_WAY = (LSTMLayer, NgramLayer, RecurrentLayer)
SHARES = {"all": Share(1, 1), "attention": Share(1, None), "ffn": Share(None, 1), "groups": Share(2, 3)}
KINDS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"place": "pre", "norm": LayerNorm()},
    "cycled": {"cycled": True},
    "memory": {"memory": 5},
    "recompute": {},
    "places": {},
    "dropout": {"dropout": 0.4},
    "cross": {"cross": True},
    "reversible": {"place": "pre", "norm": LayerNorm(), "of": Reversible},
}


def stack(mixer: Mixer, share: Share, place="post", dropout=0.0, cycled=False, cross=False, of=Stack, **more) -> Stack:
    block = Block(mixer, FeedForward(40), place=place, dropout=dropout, cross=Attention(2) if cross else None)
    other = dataclasses.replace(block, place="pre")
    return of(DEPTH, (block, other) if cycled else block, share, **more)


def run(module: StackLayer, kind: str, x: Tensor) -> Tensor:
    """The vectors that such a stack gives for rows of packed text."""
    lengths = [[3, 5], [LENGTH]]
    if kind == "memory":
        whole = packed([[2 * LENGTH]] * 2, 2 * LENGTH, "causal")
        first, second = (whole.query.each(lambda v, n=n: v[:, n : n + LENGTH]) for n in (0, LENGTH))
        past = module(x, Context.make(first, first, "causal")).memory
        return module(x.flip(1), Context.make(second, second, "causal", past=past)).last
    more: dict[str, Any] = {}
    if kind == "places":
        more["positions"] = torch.tensor([0, 3, 9])
    if kind == "dropout":
        more["key"] = DropoutKey.make(3, rows=range(2))
    if kind == "cross":
        more["source"] = Source(x.flip(1), packed(lengths, LENGTH).query)
    module.recompute = kind == "recompute"
    mixer = module.blocks[0].mixer
    causal = isinstance(getattr(mixer, "bias", None), AdaptiveSpanLayer) or isinstance(mixer, ONE_WAY)
    last = module(x, packed(lengths, LENGTH, "causal" if causal else "full", **more)).last
    return last.flatten(0, 1)[more["positions"]] if kind == "places" else last


def takes(mixer: str, kind: str) -> bool:
    return kind != "memory" or "rows" in MIXERS[mixer].takes


# What is shared is nothing to the mixer: attention meets every kind of stack with every sharing, the others those kinds
# that call a mixer in another way, and one that has states and dropout of its own meets all.
PLAIN = [("attention", share, kind) for share in SHARES for kind in KINDS]
CALLS = ("post", "memory", "recompute")
OTHERS = [(mixer, "groups", kind) for mixer in MIXERS for kind in KINDS if mixer == "recurrence+drops" or kind in CALLS]
CASES = PLAIN + [case for case in OTHERS if case[0] != "attention" and takes(case[0], case[2])]


@pytest.mark.parametrize(("mixer", "share", "kind"), CASES)
def test_shared_weights_are_copied_ones_and_their_gradient_the_sum(mixer, share, kind):
    torch.manual_seed(0)
    shared, own = (stack(MIXERS[mixer], each, **KINDS[kind]).build(WIDTH) for each in (SHARES[share], Share()))
    own.load_state_dict(shared.state_dict())
    x = torch.randn(2, LENGTH, WIDTH)
    outs = [run(module, kind, x) for module in (shared, own)]
    weight = torch.randn(outs[0].shape[-1])  # a norm's outputs sum to nothing
    assert torch.equal(*outs)
    for out in outs:
        (out * weight).sum().backward()
    summed: dict[int, Tensor] = {}
    copies = dict(own.named_parameters())
    for name, parameter in shared.named_parameters(remove_duplicate=False):
        gradient = copies[name].grad
        if gradient is not None:
            summed[id(parameter)] = summed.get(id(parameter), torch.zeros_like(gradient)) + gradient
    for name, parameter in shared.named_parameters():
        if "_global." in name:  # nothing is marked here
            continue
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, summed[id(parameter)], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("mixer", "share", "kind"), PLAIN + [(mixer, "groups", "post") for mixer in MIXERS if mixer != "attention"]
)
def test_each_layer_has_the_set_that_is_its_own(mixer, share, kind):
    module, sets = stack(MIXERS[mixer], SHARES[share], **KINDS[kind]).build(WIDTH), SHARES[share]
    for parts, groups in (
        (("mixer", "mixer_norm", "cross", "cross_norm"), sets.attention),
        (("ffn", "ffn_norm"), sets.ffn),
    ):
        for part in parts:
            results = [getattr(block, part) for block in module.blocks]
            if results[0] is None:
                continue
            numbers = [layer * (groups or DEPTH) // DEPTH for layer in range(DEPTH)]
            for here in range(DEPTH):
                for there in range(here):
                    pairs = list(zip(results[here].parameters(), results[there].parameters(), strict=True))
                    assert pairs
                    assert all((a is b) == (numbers[here] == numbers[there]) for a, b in pairs)


def recipe_of(spec: Stack) -> Recipe:
    r = cw.recipe("bert_tiny")
    r.encoder.width, r.encoder.vocab, r.encoder.stack = WIDTH, 40, spec
    if spec.memory or any("full" not in mixer.honours for mixer in spec.mixers()):
        r.objective = Objective(Stream(length=128), Shift(), (NextToken(),))
    return r


SAVED = ("post", "pre", "cycled", "memory", "reversible")


@pytest.mark.parametrize(
    ("mixer", "share", "kind"),
    [each for each in PLAIN if each[2] in SAVED]
    + [(mixer, "groups", "post") for mixer in MIXERS if mixer != "attention"],
)
def test_each_tensor_is_counted_and_saved_once_and_shared_again_when_loaded(mixer, share, kind, tmp_path):
    r = recipe_of(stack(MIXERS[mixer], SHARES[share], **KINDS[kind]))
    model = build(r).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.15)
    cw.save(TextEncoder(model, None, r), tmp_path / "model")
    with safe_open(tmp_path / "model" / "model.safetensors", "pt") as file:
        sizes = {name: file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118
    assert sum(sizes.values()) == count_parameters(r) == sum({id(p): p.numel() for p in model.parameters()}.values())
    alone = sum(p.numel() for p in r.encoder.stack.block_at(0).build(WIDTH).parameters())
    inside = sum(size for name, size in sizes.items() if ".blocks." in name)
    assert alone <= inside < DEPTH * alone
    assert (inside == alone) == (share == "all")
    again = cw.load(tmp_path / "model", parts=[Distance])
    assert again.recipe == r
    pairs = zip(model.state_dict().items(), again.model.state_dict().items(), strict=True)
    assert all(left == right and torch.equal(a, b) for (left, a), (right, b) in pairs)
    assert len(list(again.model.parameters())) == len(list(model.parameters())) == len(sizes)
    ids = torch.arange(7)[None] % 40
    assert torch.equal(again(ids).last_hidden_state, TextEncoder(model, None, r)(ids).last_hidden_state)


def test_one_step_of_training_keeps_what_is_shared_equal():
    r = recipe_of(stack(Attention(4), Share(2, 3)))
    model = build(r)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.encoder.stack(torch.randn(1, LENGTH, WIDTH), packed([[LENGTH]], LENGTH)).last[..., 0].sum().backward()
    optimizer.step()
    blocks = model.encoder.stack.blocks
    assert torch.equal(blocks[0].mixer.query.weight, blocks[2].mixer.query.weight)
    assert not torch.equal(blocks[0].mixer.query.weight, blocks[3].mixer.query.weight)


WITH, WITHOUT = Block(Attention(4), FeedForward(32)), Block(Attention(4), None)
CROSS = Block(Attention(4), FeedForward(32), cross=Attention(4))


@pytest.mark.parametrize(
    ("blocks", "share", "message"),
    [
        ((WITH, WITHOUT), Share(None, 1), r"layer 1, up\.weight = nothing: \(32, 24\) is shared with it"),
        ((WITHOUT, WITH), Share(None, 1), r"layer 1, up\.weight = \(32, 24\): nothing is shared with it"),
        ((WITH, CROSS), Share(1, None), r"layer 1, query\.weight = \(24, 24\): nothing is shared with it"),
    ],
)
def test_a_part_that_some_layers_lack_is_not_shared(blocks, share, message):
    with pytest.raises(RecipeError, match=message):
        Stack(2, blocks, share).build(WIDTH)
    with pytest.raises(RecipeError, match=rf"encoder\.stack\.share, {message}; share only blocks of one shape"):
        Stack(2, blocks, share).fit("encoder.stack", WIDTH)


def test_heads_may_differ_where_shapes_do_not():
    module = Stack(4, (Block(Attention(4), FeedForward(32)), Block(Attention(2), FeedForward(32))), Share(1, 1))
    blocks = module.build(WIDTH).blocks
    assert [block.mixer.heads for block in blocks] == [4, 2, 4, 2]
    assert len({id(block.mixer.query.weight) for block in blocks}) == 1


RELATIVE = Attention(4, bias=Relative(segments=True))


@pytest.mark.parametrize(("groups", "sets"), [(1, 1), (3, 3), (None, DEPTH)])
def test_layers_share_the_vectors_that_belong_to_no_distance_and_nothing_else(groups, sets, tmp_path):
    r = recipe_of(stack(RELATIVE, Share(bias=groups)))
    model = build(r).eval()
    biases = [block.mixer.bias for block in model.encoder.stack.blocks]
    for name in ("u", "v", "w"):
        vectors = [getattr(bias, name) for bias in biases]
        assert len({id(vector) for vector in vectors}) == sets
        assert all(0.005 < float(vector.detach().std()) < 0.05 for vector in vectors)  # fresh, like matrices
    assert len({id(bias.position.weight) for bias in biases} | {id(bias.segment) for bias in biases}) == 2 * DEPTH
    own = count_parameters(recipe_of(stack(RELATIVE, Share())))
    assert count_parameters(r) == own - (DEPTH - sets) * 3 * WIDTH
    cw.save(TextEncoder(model, None, r), tmp_path / "model")
    again = cw.load(tmp_path / "model")
    assert again.recipe == r
    assert len(list(again.model.parameters())) == len(list(model.parameters()))
    ids = torch.arange(7)[None] % 40
    assert torch.equal(again(ids).last_hidden_state, TextEncoder(model, None, r)(ids).last_hidden_state)


@pytest.mark.parametrize("mixer", [Attention(4), Attention(4, bias=Shaw())])
def test_vectors_that_are_not_there_cannot_be_shared(mixer):
    with pytest.raises(
        RecipeError, match=r"stack\.share\.bias = 1: Attention adds nothing to its scores that could be"
    ):
        check(stack(mixer, Share(bias=1)), "stack")


def test_sets_that_do_not_divide_the_depth_are_refused():
    with pytest.raises(RecipeError, match=r"stack\.share\.bias = 4: depth 6 is not divisible by it; use 1, 2, 3 or 6"):
        check(stack(RELATIVE, Share(bias=4)), "stack")
