"""Attention of a fresh model looks at its neighbours."""

import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.context import AttentionCapture, Context
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import Rotary
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe as named
from clozeworks.starts.initializer import write_initializers
from clozeworks.starts.neighbours import NeighbourInit


def make(name: str = "bert_tiny", heads: int = 4, length: int = 32, **fields: object) -> Recipe:
    r = named(name)
    r.encoder.vocab, r.encoder.init, r.encoder.width = 60, 0.06, 128
    block = r.encoder.stack.block_at(0)
    assert isinstance(block.mixer, Attention)
    block.mixer.heads = heads
    if "rotary" in fields:
        block.mixer.rotary = Rotary()
        r.encoder.embed.positions = None
    r.objective.segments.length = length
    r.start = (NeighbourInit(),)
    spec.check(r)
    return r


def weights(r: Recipe, length: int, kind: str = "full") -> torch.Tensor:
    """[H, L, L] of the first layer, for a random text."""
    model = build(r).eval()
    tokens = torch.randint(5, 60, (1, length), generator=torch.Generator().manual_seed(1))
    position = torch.arange(length)[None]
    side = TokenInfo.make(position, torch.zeros_like(position), kind)  # pyright: ignore[reportArgumentType]
    capture = AttentionCapture(frozenset({"weights"}), frozenset({0}))
    context = Context.make(side, side, kind, capture=capture)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        model.encoder(tokens, side, context)
    return capture.captured["weights.0"][0]


def looked_at(w: torch.Tensor, offset: int) -> torch.Tensor:
    """Of each query that has such a neighbour the weight it has."""
    return w.diagonal(offset)


@pytest.mark.parametrize(("heads", "length"), [(1, 32), (2, 32), (4, 32), (2, 200), (8, 64)])
def test_each_head_looks_at_its_own_neighbour(heads: int, length: int) -> None:
    w = weights(make(heads=heads, length=length), length)
    for head in range(heads):
        offset = (head // 2 + 1) * (1 if head % 2 else -1)
        best = w[head].argmax(-1)[8:-8]
        right = (best == torch.arange(length)[8:-8] + offset).float().mean()
        assert right > 0.8, (head, float(right))
        assert looked_at(w[head], offset).mean() > 0.2


def test_at_random_no_neighbour_is_preferred() -> None:
    r = make()
    r.start = ()
    assert looked_at(weights(r, 32)[0], -1).mean() < 0.1


def test_where_later_tokens_are_hidden_heads_look_back() -> None:
    r = make("gpt_mini")
    w = weights(r, 32, "causal")
    for head in range(4):
        assert (w[head].argmax(-1)[8:] == torch.arange(32)[8:] - 1 - head).float().mean() > 0.8


@pytest.mark.parametrize("heads", [2, 4])
def test_rotary_heads_lean_to_their_neighbour(heads: int) -> None:
    """Its waves are slow, so a head looks at a few tokens around the neighbour."""
    w = weights(make(heads=heads, rotary=True), 32)
    places = torch.arange(32).float()
    for head, offset in zip(range(heads), (-1, 1, -2, 2), strict=False):
        centre = (w[head] @ places - places)[8:-8].mean()
        assert float(centre) == pytest.approx(offset, abs=0.4)
        near = sum(looked_at(w[head], offset + by).mean() for by in (-2, -1, 0, 1, 2))
        assert near > 0.6


def test_relative_positions_lean_back() -> None:
    r = named("xlnet_mini")
    r.encoder.vocab, r.start = 60, (NeighbourInit(),)
    spec.check(r)
    w = weights(r, 32)
    for head, offset in enumerate((-1, 1, -2, 2)):
        near = sum(looked_at(w[head], offset + by).mean() for by in (-2, -1, 0, 1, 2))
        assert near > 0.6


def test_narrow_tables_reach_attention_through_their_projection() -> None:
    r = make("albert_mini")
    assert r.encoder.embed.width is not None
    w = weights(r, 32)
    assert (w[0].argmax(-1)[8:-8] == torch.arange(32)[8:-8] - 1).float().mean() > 0.8


def test_what_cannot_begin_so_is_refused_with_the_reason() -> None:
    r = named("awd_lstm_mini")
    r.start = (NeighbourInit(),)
    with pytest.raises(RecipeError, match=r"start.0 = NeighbourInit: layer 0 is LSTM, which has no queries"):
        spec.check(r, "r")
    r = make()
    mixer = r.encoder.stack.block_at(0).mixer
    assert isinstance(mixer, Attention)
    mixer.bias = Shaw(4)
    with pytest.raises(RecipeError, match="has Shaw, which is not made of waves"):
        spec.check(r, "r")
    r = make(rotary=True)
    mixer = r.encoder.stack.block_at(0).mixer
    assert isinstance(mixer, Attention)
    mixer.affine = False
    with pytest.raises(RecipeError, match="biases of q and k are what begins"):
        spec.check(r, "r")


def test_the_same_seed_begins_the_same() -> None:
    r = make()
    one, two = (dict(build(r).named_parameters()) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_names_of_the_command_line_are_parts() -> None:
    assert write_initializers("neighbours,counted") == "[NeighbourInit, CountedTable]"
    assert write_initializers("prior, prior") == "[FrequencyPrior]"
    assert write_initializers("none") == "[]"
    known = "counted, distilled, fitted, neighbours, prior, skipgram or none is needed; did you mean counted"
    with pytest.raises(InputError, match=known):
        write_initializers("neighbours,count")
