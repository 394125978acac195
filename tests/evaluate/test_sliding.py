"""The likelihood of a text by a sliding window and with memory, beside plain loops over tokens and segments."""

import math

import pytest
import torch
from torch import Tensor

from clozeworks.core.batch import from_padded
from clozeworks.core.cache import KVCache
from clozeworks.core.errors import InputError
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.evaluate.sliding import by_memory, by_window, measure, text_of
from clozeworks.model import Encoder, Model
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.within import Within
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Bias
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken
from tests.core.test_segment_memory import batch_of
from tests.toys import VOCABULARY, Text

WIDTH, VOCAB = 16, 30
NEXT = (NextToken(bias=True),)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def model_of(depth: int = 2, memory: int = 0, relative: bool | Bias = True, losses=NEXT, **more) -> Model:
    torch.manual_seed(0)
    mixer = Attention(2, bias=relative if isinstance(relative, Bias) else Relative() if relative else None)
    embed = Embed(None if relative else LearnedPositions(64), segments=0, norm=None)
    model = Model(
        Encoder(WIDTH, VOCAB, embed, Stack(depth, Block(mixer, FeedForward(32)), memory=memory, **more)), losses
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.4)
    return model


def text(count: int) -> Tensor:
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(1))


def together(pieces) -> Tensor:
    return torch.cat(list(pieces))


@torch.no_grad()
def once(model: Model, row: Tensor) -> Tensor:
    """[n] -> [n, V]: log-probabilities from one pass, by the definition."""
    batch = from_padded(row[None], kind="causal")
    hidden = model.encoder(row[None], batch.token_info, batch.context(backend="dense"))
    return model.head("next_token").logits(hidden.last[0]).log_softmax(-1)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportCallIssue]


def chosen(chances: Tensor, answers: Tensor) -> Tensor:
    return -chances.gather(1, answers[:, None])[:, 0]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("window", [19, 20, 50])
def test_a_window_over_the_whole_text_is_one_pass(window, relative):
    model, row = model_of(relative=relative), text(20)
    expected = chosen(once(model, row[:-1]), row[1:])
    torch.testing.assert_close(together(by_window(model, row, window)), expected, **CLOSE)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("batch_tokens", [1, 12, 999])
@pytest.mark.parametrize("memory", [0, 4])
def test_a_stride_of_one_is_a_loop_over_tokens(batch_tokens, relative, memory):
    """A model with memory has none before a window."""
    model, row, window = model_of(relative=relative, memory=memory), text(23), 5
    expected = torch.stack(
        [chosen(once(model, row[max(0, at - window) : at])[-1:], row[at, None])[0] for at in range(1, len(row))]
    )
    actual = together(by_window(model, row, window, batch_tokens=batch_tokens))
    torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize(("window", "stride"), [(6, 2), (6, 4), (6, 6), (7, 5)])
@pytest.mark.parametrize("count", [4, 7, 8, 21, 24])
def test_a_longer_stride_tells_the_end_of_each_window(window, stride, count):
    model, row, expected = model_of(), text(count), []
    for at in range(1, count):
        # The first window in which it is among the last `stride`, or the one that ends with the text.
        begin = max(0, min(math.ceil((at - window) / stride) * stride, count - 1 - window))
        expected.append(chosen(once(model, row[begin:at])[-1:], row[at, None])[0])
    torch.testing.assert_close(together(by_window(model, row, window, stride)), torch.stack(expected), **CLOSE)


@pytest.mark.parametrize("start", ["empty", "zeros"])
@pytest.mark.parametrize("relative", [False, True, Within(4, Relative())])
@pytest.mark.parametrize(("segment", "memory"), [(4, 6), (5, 3), (1, 4), (40, 6)])
def test_memory_is_a_loop_over_segments(segment, memory, relative, start):
    """As training reads them: hidden rows, by the definition; keys and values are the same."""
    model, row = model_of(3, memory, relative, initial_memory=start), text(22)
    segment_memory, expected = SegmentMemory(), []
    with torch.no_grad():
        for at in range(0, len(row) - 1, segment):
            answers = row[at + 1 : at + 1 + segment]
            given = segment_memory.give(batch_of(row[None, at : at + len(answers)], [0], at > 0))
            hidden = model.encoder(given.tokens, given.token_info, given.context(backend="dense"))
            segment_memory.take(given, hidden.memory)
            expected.append(chosen(model.head("next_token").logits(hidden.last[0]).log_softmax(-1), answers))  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportCallIssue]
    rows, keys = (together(by_memory(model, row, segment, keys=keys)) for keys in (False, True))
    torch.testing.assert_close(rows, torch.cat(expected), **CLOSE)
    torch.testing.assert_close(keys, rows, atol=2e-6, rtol=1e-6)


def test_keys_are_kept_and_no_more_than_the_memory():
    model, row = model_of(2, 5), text(12)
    results = []
    model.encoder.stack.register_forward_hook(lambda _, __, hidden: results.append(hidden.memory))
    for keys in (True, False):
        together(by_memory(model, row, 4, keys=keys))
    assert [isinstance(memory.layers[0], KVCache) for memory in results] == [True] * 3 + [False] * 3
    assert [memory.layers[1].k.shape[2] for memory in results[:3]] == [4, 5, 5]
    assert all(memory.token_info.position.shape[1] == memory.layers[0].k.shape[2] for memory in results[:3])


def test_one_layer_with_a_memory_of_all_has_the_full_context():
    model, row = model_of(1, memory=30), text(25)
    whole = chosen(once(model, row[:-1]), row[1:])
    torch.testing.assert_close(together(by_memory(model, row, 4)), whole, **CLOSE)
    assert not torch.allclose(together(by_memory(model_of(1, memory=2), row, 4)), whole, atol=1e-3)


def test_a_memory_of_the_window_gives_one_layer_at_least_its_context():
    """The first token of a segment sees the memory and itself: a window one longer."""
    window, segment = 6, 4
    model, row = model_of(1, memory=window - 1), text(30)
    slid, remembered = together(by_window(model, row, window)), together(by_memory(model, row, segment))
    torch.testing.assert_close(remembered[::segment], slid[::segment], **CLOSE)


def test_figures_are_means_over_all():
    watched = []
    metrics = measure([torch.tensor([1.0, 2.0]), torch.tensor([6.0])], watched.append)
    assert (metrics.loss, metrics.count, watched) == (3.0, 3, [2, 3])
    assert metrics.perplexity == pytest.approx(math.exp(3))
    assert metrics.bits_per_character(9) == pytest.approx(1 / math.log(2))
    assert metrics.seconds_per_token > 0


def test_the_text_is_its_documents_with_borders():
    corpus = Text([[3, 2], [4]])
    result = text_of(corpus, VOCABULARY).tolist()
    tokens = corpus.tokens.tolist()
    assert result == [*tokens[:5], VOCABULARY.sep, *tokens[5:], VOCABULARY.sep]
    assert text_of(corpus, VOCABULARY, 4).tolist() == tokens[:4]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: by_window(model_of(), text(9), 0), "window: 0; at least one token is needed"),
        (lambda: by_window(model_of(), text(9), 4, 5), "stride: 5; 1 to 4 are within the window"),
        (lambda: by_memory(model_of(), text(9), 4), "a stack without memory; nothing would be remembered"),
        (lambda: by_window(model_of(losses=(MaskedLM(),)), text(9), 4), "one that predicts the next token is needed"),
        (lambda: by_window(model_of(), text(1), 4), "text: 1 token; two are needed"),
    ],
)
def test_what_cannot_be_is_refused(run, message):
    with pytest.raises(InputError, match=message):
        list(run())
