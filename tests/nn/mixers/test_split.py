"""Branches beside each other: each as it would be alone on its channels."""

import dataclasses
import json
from typing import ClassVar

import pytest
import torch

from clozeworks.core.cache import BranchCaches, ConvCache, KVCache
from clozeworks.core.context import AttentionCapture, Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check, from_dict, to_dict
from clozeworks.inference.beam_search import BeamSearch, beam_search
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.model import Encoder, Model
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.mixers.ngram import Ngram
from clozeworks.nn.mixers.recurrent_across import RecurrentAcross
from clozeworks.nn.mixers.split import Split
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.nn.stack import Share, Stack
from clozeworks.nn.window import Window
from clozeworks.objectives.losses.next_token import NextToken
from tests.toys import packed

WIDTH, VOCAB = 16, 30
TWO = Split((Attention(2), LightConv(2, 5, dynamic=True)))


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("widths", [None, (4, 12)])
def test_each_branch_is_as_alone_on_its_channels(widths, kind):
    torch.manual_seed(0)
    mixer = Split((Attention(2), LightConv(2, 5, dynamic=True)), widths).build(WIDTH)
    x, context = torch.randn(2, 9, WIDTH), packed([[4, 5], [7]], 9, kind)
    out, carry = mixer(x, None, context)
    cut = 8 if widths is None else 4
    parts = zip(mixer.branches, x.split([cut, WIDTH - cut], -1), strict=True)
    first, second = (branch(part, None, context)[0] for branch, part in parts)
    torch.testing.assert_close(out, torch.cat([first, second], -1))
    assert carry is None


def test_attention_on_its_half_is_that_of_torch():
    torch.manual_seed(0)
    mixer, x = TWO.build(WIDTH), torch.randn(2, 9, WIDTH)
    ours, theirs = mixer.branches[0], torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    half = x[..., :8]
    torch.testing.assert_close(mixer(x, None, packed([[9], [9]], 9))[0][..., :8], theirs(half, half, half)[0])


def test_it_can_do_what_all_of_its_branches_can():
    assert TWO.honours == {"full", "causal"}
    assert TWO.takes == {"self", "rows", "carry"}
    assert Split((TWO, GlobalWindow(2, Window(3)))).takes == {"self", "rows"}
    assert Split((Attention(1), Attention(2))).honours == Attention(1).honours
    with pytest.raises(RecipeError, match=r"stack\.memory = 4: Split takes no memory"):
        check(Stack(1, Block(Split((Deaf(2), Attention(2))), None), memory=4), "stack")


@dataclasses.dataclass(slots=True)
class Deaf(Attention):
    """Attention that remembers nothing."""

    takes: ClassVar[frozenset[str]] = frozenset({"self"})


def test_what_is_stored_comes_back():
    spec = Split((Attention(2), LightConv(2, 7, 0.1, dynamic=True)), (6, 10))
    assert from_dict(json.loads(json.dumps(to_dict(spec)))) == spec


def test_a_branch_that_reads_the_source_by_itself_is_refused():
    with pytest.raises(RecipeError, match=r"branches\.1 = RecurrentAcross: it reads the source by itself"):
        check(Split((LightConv(1, 3), RecurrentAcross(score=None))), "mixer")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Split((Attention(2),)), r"mixer\.branches = 1: at least two"),
        (Split((Attention(2), Attention(2)), (4, 4, 8)), r"mixer\.widths = \[4, 4, 8\]: a width of 1 or more"),
        (Split((Attention(2), Attention(2)), (16, 0)), r"mixer\.widths\.1 = 0: 1 or more"),
        (
            Split((Attention(2), Attention(2)), (4, 8)),
            r"mixer\.widths = \[4, 8\]: they are 12 together, .* width is 16",
        ),
        (Split((Attention(1), Attention(1), Attention(1))), r"mixer\.branches = 3: width 16 is not .*; use .* of 18"),
        (Split((Attention(2), LightConv(3, 5))), r"mixer\.branches\.1\.groups = 3: width 8 is not divisible by it"),
    ],
)
def test_widths_that_do_not_fit_are_refused(spec, message):
    with pytest.raises(RecipeError, match=message):
        check(spec, "mixer")
        spec.fit("mixer", WIDTH)


def test_branches_drop_apart():
    mixer = Split((Attention(2, dropout=0.5), Attention(2, dropout=0.5))).build(WIDTH)
    mixer.branches[1].load_state_dict(mixer.branches[0].state_dict())
    half = torch.randn(1, 6, WIDTH // 2)
    out, _ = mixer(torch.cat([half, half], -1), None, packed([[6]], 6, key=DropoutKey.make(1)))
    assert not torch.allclose(out[..., : WIDTH // 2], out[..., WIDTH // 2 :])


def test_taps_hold_the_heads_of_all_branches():
    mixer, x = Split((Attention(2), LightConv(2, 3), Attention(1)), (8, 4, 4)).build(WIDTH), torch.randn(1, 6, WIDTH)
    capture = AttentionCapture(frozenset({"weights", "scores"}), block=3)
    mixer(x, None, packed([[6]], 6, capture=capture))
    assert set(capture.captured) == {"weights.3", "scores.3"}
    own = AttentionCapture()
    mixer.branches[2](x[..., 12:], None, packed([[6]], 6, capture=own))
    assert capture.captured["weights.3"].shape == (1, 3, 6, 6)
    torch.testing.assert_close(capture.captured["weights.3"][:, 2:], own.captured["weights.0"])


def test_places_pick_in_all_branches():
    mixer, x, places = TWO.build(WIDTH), torch.randn(2, 9, WIDTH), torch.tensor([0, 7, 12])
    some, _ = mixer(x, None, packed([[9], [9]], 9, positions=places))
    torch.testing.assert_close(some, mixer(x, None, packed([[9], [9]], 9))[0].flatten(0, 1)[places])
    mixer.branches[0] = Whole(mixer.branches[0])
    torch.testing.assert_close(mixer(x, None, packed([[9], [9]], 9, positions=places))[0], some)


class Whole(torch.nn.Module):
    """A mixer that gives every token, whatever is asked for."""

    def __init__(self, mixer):
        super().__init__()
        self.mixer = mixer

    def forward(self, query, memory, context):
        return self.mixer(query, memory, context.replace(positions=None))


def test_what_is_carried_is_what_each_branch_carries():
    mixer = TWO.build(WIDTH)
    side = packed([[6], [6]], 6, "causal").query
    _, carry = mixer(torch.randn(2, 6, WIDTH), None, Context.make(side, side, "causal", carry=True))
    assert isinstance(carry, BranchCaches)
    keys, tail = carry.parts
    assert isinstance(keys, KVCache)
    assert isinstance(tail, ConvCache)
    keys, tail = carry.tail(2, unread=1).rows(torch.tensor([1])).parts
    assert keys.k.shape[:3] == (1, 2, 2)
    assert torch.equal(tail.last, carry.parts[1].last[1:, 3:5])


MODELS: dict[str, Mixer] = {
    "convolution": LightConv(2, 5, dynamic=True),
    "split": TWO,
    "relative": Split((Attention(2, bias=Relative()), LightConv(2, 9)), (4, 12)),
}


def model_of(mixer: Mixer, **more) -> Model:
    torch.manual_seed(0)
    stack = Stack(3, Block(mixer, FeedForward(WIDTH, "relu"), dropout=0.0), **more)
    embed = Embed(SinusoidalPositions(), segments=0, norm=None, dropout=0.0)
    model = Model(Encoder(WIDTH, VOCAB, embed, stack), (NextToken(),))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return model


@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("mixer", MODELS)
def test_without_a_cache_the_same_comes_out(mixer, memory):
    model, prompt = model_of(MODELS[mixer], memory=memory), [1, 2, 3, 4, 5, 6]
    results = [sample(IncrementalReader(model, cache, length=4), prompt, 8, Sampling(0))[0] for cache in (True, False)]
    assert results[0].tokens == results[1].tokens
    assert results[0].score == pytest.approx(results[1].score, rel=1e-4)
    beams = [
        beam_search(IncrementalReader(model, cache, length=4), prompt, 4, BeamSearch(3))[0] for cache in (True, False)
    ]
    assert beams[0].tokens == beams[1].tokens


@pytest.mark.parametrize("mixer", MODELS)
def test_a_memory_of_everything_is_one_long_row(mixer):
    """Of one layer, whose past needs no past of its own."""
    torch.manual_seed(0)
    stack = Stack(1, Block(MODELS[mixer], None, dropout=0.0), memory=20).build(WIDTH)
    x, whole = torch.randn(2, 12, WIDTH), packed([[12], [12]], 12, "causal")
    first, second = (whole.query.each(lambda v, n=n: v[:, n : n + 6]) for n in (0, 6))
    past = stack(x[:, :6], Context.make(first, first, "causal")).memory
    out = stack(x[:, 6:], Context.make(second, second, "causal", past=past)).last
    torch.testing.assert_close(out, stack(x, whole).last[:, 6:])


def test_kernels_of_layers_that_share_must_be_of_one_size():
    blocks = tuple(Block(LightConv(2, kernel), FeedForward(WIDTH)) for kernel in (3, 5))
    with pytest.raises(RecipeError, match=r"layer 1, weights\.kernel = \(2, 5\): \(2, 3\) is shared with it"):
        Stack(2, blocks, Share(1, None)).build(WIDTH)


def test_a_branch_may_give_another_width_than_its_share():
    mixer = Split((Attention(2), Ngram(3, 5)))
    out, _ = mixer.build(WIDTH)(torch.randn(2, 9, WIDTH), None, packed([[4, 5], [7]], 9, "causal"))
    assert out.shape[-1] == mixer.out_width(WIDTH) == WIDTH // 2 + 5
    message = r"block\.residual = True: width 13 cannot be added to width 16"
    with pytest.raises(RecipeError, match=message):
        Block(mixer, FeedForward(32)).fit("block", WIDTH)
