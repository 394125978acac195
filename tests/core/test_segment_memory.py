"""What one batch read is the past of the next: of the same streams, in its place, and of nobody else."""

import dataclasses

import pytest
import torch

from clozeworks.core.batch import Batch
from clozeworks.core.context import Memory
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.core.token_info import FORGOTTEN, DocumentLayout, TokenInfo
from clozeworks.model import Encoder, Model
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from tests.promises import verify_promises

WIDTH, VOCAB = 16, 30


def model_of(depth: int = 2, **more) -> Model:
    torch.manual_seed(0)
    stack = Stack(depth, Block(Attention(2), FeedForward(32), dropout=0.0), **{"memory": 6, **more})
    return Model(Encoder(WIDTH, VOCAB, Embed(None, segments=0, norm=None, dropout=0.0), stack), (NextToken(),))


def batch_of(tokens: torch.Tensor, streams: list[int], goes_on: bool, **more) -> Batch:
    """Rows of streams, each token labelled with a number of its own."""
    rows, width = tokens.shape
    position = torch.arange(width).expand(rows, width)
    backward = more.get("backward")
    if backward is not None:
        position = torch.where(backward[:, None], -position, position)
    document = torch.arange(rows)[:, None].expand(rows, width)
    side = TokenInfo.make(position, document, "causal")
    if backward is not None:
        order = torch.arange(width).expand(rows, width)
        side = dataclasses.replace(side, appears=order, sees=order)
    starts = tuple(range(0, rows * width, width))
    borders = DocumentLayout(starts, (width,) * rows, rows, width)
    batch = Batch(tokens, side, "causal" if backward is None else "order", borders, torch.tensor(starts))
    batch.example = {"stream": torch.tensor(streams), "continues": torch.tensor([goes_on] * rows)}
    batch.targets, batch.labels = torch.arange(rows * width), tokens.flatten()
    return batch.replace(**more)


def stream(tokens: torch.Tensor, length: int, groups: list[list[int]]) -> list[Batch]:
    """Streams [n, T] in rows of `length`, these groups of them together."""
    return [
        batch_of(tokens[group, at : at + length], group, at > 0)
        for at in range(0, tokens.shape[1], length)
        for group in groups
    ]


def read(model: Model, batches: list[Batch], segment_memory: SegmentMemory | None = None) -> list[torch.Tensor]:
    segment_memory, results = segment_memory or SegmentMemory(), []
    with torch.no_grad():
        for batch in batches:
            given = segment_memory.give(batch)
            hidden = model.encoder(given.tokens, given.token_info, given.context())
            segment_memory.take(batch, hidden.memory)
            results.append(hidden.last)
    return results


def test_one_layer_sees_what_one_long_row_shows():
    model, tokens = model_of(1, memory=9), torch.randint(VOCAB, (3, 12))
    whole = batch_of(tokens, [0, 1, 2], False)
    expected = model.encoder(tokens, whole.token_info, whole.context()).last
    parts = read(model, stream(tokens, 4, [[0, 1, 2]]))
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=2e-6, rtol=1e-5)
    short = torch.cat(read(model_of(1, memory=2), stream(tokens, 4, [[0, 1, 2]])), 1)
    assert not torch.allclose(short[:, -1], expected[:, -1], atol=1e-4), "a memory of two rows is too short for that"


def test_many_layers_with_room_for_all_are_one_long_row():
    """Nothing learns here, so rows computed earlier are what they would be now."""
    model, tokens = model_of(3, memory=99), torch.randint(VOCAB, (2, 15))
    whole = batch_of(tokens, [0, 1], False)
    expected = model.encoder(tokens, whole.token_info, whole.context()).last
    torch.testing.assert_close(torch.cat(read(model, stream(tokens, 5, [[0, 1]])), 1), expected, atol=5e-6, rtol=1e-5)


def test_how_lanes_are_grouped_changes_nothing():
    model, tokens = model_of(), torch.randint(VOCAB, (4, 12))
    one = read(model, stream(tokens, 4, [[0, 1, 2, 3]]))
    two = read(model, stream(tokens, 4, [[0, 1], [2, 3]]))
    regrouped = read(model, stream(tokens[:, :4], 4, [[0, 1], [2, 3]])
                     + [b.replace(example={**b.example, "continues": torch.tensor([True] * len(b.tokens))})
                        for b in stream(tokens[:, 4:], 4, [[0], [1, 2, 3]])])  # fmt: skip
    for at in range(3):
        torch.testing.assert_close(torch.cat(two[2 * at : 2 * at + 2]), one[at])
        torch.testing.assert_close(torch.cat(regrouped[2 * at : 2 * at + 2]), one[at])


def test_where_a_lane_begins_again_nothing_is_remembered():
    model, tokens, segment_memory = model_of(), torch.randint(VOCAB, (2, 8)), SegmentMemory()
    first = read(model, stream(tokens, 4, [[0, 1]]), segment_memory)
    assert segment_memory.length == 6
    again = read(model, stream(tokens, 4, [[0, 1]]), segment_memory)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    segment_memory.forget()
    later = batch_of(tokens[:, 4:], [0, 1], True)
    assert segment_memory.give(later).past is None
    assert not torch.allclose(read(model, [later])[0], first[1], atol=1e-4), "the memory was of use"


def test_rows_without_lanes_pass_through():
    model, segment_memory = model_of(), SegmentMemory()
    batch = batch_of(torch.randint(VOCAB, (2, 4)), [0, 1], True)
    batch.example = {}
    assert segment_memory.give(batch) is batch
    segment_memory.take(batch, model(batch).hidden.memory)
    assert segment_memory.state() == {}
    with_streams = batch_of(batch.tokens, [0, 1], True)
    segment_memory.take(with_streams, model_of(memory=0)(with_streams).hidden.memory)
    assert segment_memory.length == 0, "a model without memory gives nothing to take"


def test_nothing_learns_through_memory():
    """The gradient of the second row is that with its memory held fixed."""
    model, tokens, segment_memory = model_of(), torch.randint(VOCAB, (1, 8)), SegmentMemory()
    first, second = stream(tokens, 4, [[0]])
    segment_memory.take(first, model(first).hidden.memory)
    given = segment_memory.give(second)
    assert given.past is not None
    assert not any(layer.requires_grad for layer in given.past.layers if isinstance(layer, torch.Tensor))
    table = model.encoder.embed.words.table.weight
    (gradient,) = torch.autograd.grad(
        model.encoder(given.tokens, given.token_info, given.context()).last.square().sum(), table
    )
    only_before = sorted(set(tokens[0, :4].tolist()) - set(tokens[0, 4:].tolist()))
    assert only_before
    assert gradient[only_before].abs().max() == 0
    assert gradient[tokens[0, 4:]].abs().max() > 0


def test_positions_are_those_before_the_row():
    model, tokens, segment_memory = model_of(), torch.randint(VOCAB, (2, 12)), SegmentMemory()
    batches = stream(tokens, 4, [[0, 1]])
    read(model, batches[:2], segment_memory)
    given = segment_memory.give(batches[2])
    assert given.past is not None
    assert given.past.token_info.position.tolist() == [list(range(-6, 0))] * 2
    assert given.past.token_info.document.tolist() == [[0] * 6, [1] * 6]
    context = given.context()
    verify_promises(context.after(given.past.token_info))
    narrow = batch_of(tokens[1:, 8:], [1], True)
    past = segment_memory.give(narrow).past
    assert past is not None
    assert past.token_info.document.tolist() == [[0] * 6], "in another batch a stream has another number"
    assert torch.equal(past.layers[1], given.past.layers[1][1:])


def test_rows_that_overlap_and_rows_read_backwards():
    """Each continues after `keep` tokens; those that run down have what they read above them."""
    model, segment_memory = model_of(memory=5), SegmentMemory()
    tokens, backward = torch.randint(VOCAB, (2, 4)), torch.tensor([False, True])
    for keep, goes_on in ((3, False), (2, True), (4, True)):
        batch = batch_of(tokens, [0, 1], goes_on, keep=keep, backward=backward)
        given = segment_memory.give(batch)
        segment_memory.take(batch, model.encoder(given.tokens, given.token_info, given.context()).memory)
    later = segment_memory.give(batch_of(tokens, [0, 1], True, keep=3, backward=backward))
    assert later.past is not None
    assert later.past.token_info.position.tolist() == [[-5, -4, -3, -2, -1], [5, 4, 3, 2, 1]]
    verify_promises(later.context().replace(kind="order").after(later.past.token_info))


def test_the_state_brings_back_the_same():
    model, tokens, segment_memory = model_of(), torch.randint(VOCAB, (4, 12)), SegmentMemory()
    batches = stream(tokens, 4, [[0, 1], [2, 3]])
    read(model, batches[:4], segment_memory)
    state = segment_memory.state()
    assert state["stream"].tolist() == [0, 1, 2, 3]
    assert state["layer.1"].shape == (4, 6, WIDTH)
    other = SegmentMemory()
    other.load(state)
    for mine, theirs in zip(read(model, batches[4:], other), read(model, batches[4:], segment_memory), strict=True):
        assert torch.equal(mine, theirs)
    other.load({})
    assert other.length == 0


def test_lanes_of_other_lengths_share_a_batch():
    """A shorter memory has forgotten rows before it, which nobody sees."""
    model, tokens, segment_memory = model_of(memory=9), torch.randint(VOCAB, (2, 9)), SegmentMemory()
    alone = [batch_of(tokens[:1, :5], [0], False), batch_of(tokens[1:, :4], [1], False)]
    read(model, alone, segment_memory)
    assert segment_memory.state()["document"][1].tolist() == [FORGOTTEN, 0, 0, 0, 0]
    both = read(model, [batch_of(tokens[:, 5:], [0, 1], True)], segment_memory)[0]
    fresh = SegmentMemory()
    read(model, alone, fresh)
    for stream in (0, 1):
        single = read(model, [batch_of(tokens[stream : stream + 1, 5:], [stream], True)], fresh)[0]
        torch.testing.assert_close(both[stream : stream + 1], single)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_start_of_zeros_is_a_memory_of_zeros(depth: int):
    model, tokens = model_of(depth, initial_memory="zeros"), torch.randint(VOCAB, (2, 8))
    empty = model_of(depth)
    batches = stream(tokens, 4, [[0, 1]])
    rows = torch.zeros(2, 6, WIDTH)
    before = torch.arange(-6, 0).expand(2, 6)
    past = Memory((rows,) * depth, TokenInfo(before, torch.tensor([[0] * 6, [1] * 6]), before, before))
    by_hand = batches[0].replace(past=past)
    expected = empty.encoder(by_hand.tokens, by_hand.token_info, by_hand.context())
    assert expected.memory is not None
    actual = read(model, batches)
    assert torch.equal(actual[0], expected.last)
    assert not torch.allclose(actual[0], read(empty, batches)[0], atol=1e-4), "zeros take their share of attention"
    segment_memory = SegmentMemory()
    segment_memory.take(batches[0], expected.memory)
    assert torch.equal(actual[1], read(empty, batches[1:], segment_memory)[0])
