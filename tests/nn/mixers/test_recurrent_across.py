"""Recurrent decoders against loops written by hand, alone and packed, at once and step by step."""

import pytest
import torch
from torch import Tensor

from clozeworks.core.context import AttentionCapture, Context, Source
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.inference.beam_search import pad_sources
from clozeworks.inference.generation import IncrementalReader
from clozeworks.nn.mixers.recurrent_across import RecurrentAcross, RecurrentAcrossLayer
from clozeworks.nn.score import Additive, Cosine, Dot, Score
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.toys import packed

WIDTH = 8
SCORES: dict[str, Score | None] = {"fixed": None, "dot": Dot(), "cosine": Cosine(), "mlp": Additive()}
MIXERS = {
    f"{name}, {cell}, {order}": RecurrentAcross(score, cell, order)
    for name, score in SCORES.items()
    for cell in ("gru", "lstm")
    for order in ("before", "after")
}
TARGETS, SOURCES = [[3, 2], [5], [1, 4]], [[4, 1], [6], [2, 3]]


@pytest.fixture(params=MIXERS)
def mixer(request) -> RecurrentAcrossLayer:
    torch.manual_seed(0)
    return MIXERS[request.param].build(WIDTH)


def context_of(targets: list[list[int]], sources: list[list[int]], hidden: Tensor, **more) -> Context:
    source = packed(sources, hidden.shape[1])
    width = more.pop("width", 6)
    return packed(targets, width, "causal", source=Source(hidden, source.query, source.layout), **more)


def by_hand(layer: RecurrentAcrossLayer, y: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """One document, y [L, D] from h [S, D], a step at a time by torch's cells: what is given, and the weights."""
    half = WIDTH // 2
    fixed = torch.cat([h[-1, :half], h[0, half:]])
    state = torch.tanh(layer.begin(h[0, half:]))
    inner, hidden = layer.cell.inner, layer.cell.hidden
    weights = inner.weight, hidden.weight, inner.bias, hidden.bias
    c, out, every = torch.zeros(WIDTH), [], []

    def ask(query: Tensor) -> Tensor:
        if layer.score is None:
            return fixed
        scores = layer.score(query[None, None], layer.score.keys(h[None]))[0, 0]
        every.append(scores.softmax(0))
        return torch.stack([weight * each for weight, each in zip(every[-1], h, strict=True)]).sum(0)

    for one in y:
        context = None if layer.after else ask(state)
        read = one if context is None else torch.cat([one, context])
        if layer.cell.kind == "gru":
            state = torch.gru_cell(read[None], state[None], *weights)[0]
        else:
            state, c = (each[0] for each in torch.lstm_cell(read[None], (state[None], c[None]), *weights))
        if context is None:
            context = ask(state)
            out.append(torch.tanh(layer.out(torch.cat([context, state]))))
        else:
            pairs = layer.out(torch.cat([state, one, context]))
            out.append(torch.stack([pairs[0::2], pairs[1::2]]).amax(0))
    return torch.stack(out), torch.stack(every) if every else torch.zeros(len(y), len(h))


@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_packed_documents_are_each_a_loop_written_by_hand(mixer, backend):
    x, hidden = torch.randn(3, 6, WIDTH), torch.randn(3, 7, WIDTH)
    capture = AttentionCapture()
    out, carry = mixer(x, None, context_of(TARGETS, SOURCES, hidden, backend=backend, capture=capture))
    assert carry is None
    for row, (targets, sources) in enumerate(zip(TARGETS, SOURCES, strict=True)):
        at = begin = 0
        for long, wide in zip(targets, sources, strict=True):
            expected, weights = by_hand(mixer, x[row, at : at + long], hidden[row, begin : begin + wide])
            torch.testing.assert_close(out[row, at : at + long], expected, atol=1e-6, rtol=1e-5)
            if mixer.score is not None:
                actual = capture.captured["weights.0"][row, 0, at : at + long]
                torch.testing.assert_close(actual[:, begin : begin + wide], weights, atol=1e-6, rtol=1e-5)
                assert not bool(actual[:, :begin].any() | actual[:, begin + wide :].any())
            at, begin = at + long, begin + wide
    assert (mixer.score is None) == (capture.captured == {})


def test_gradients_are_those_of_the_loop(mixer):
    x, hidden = torch.randn(1, 4, WIDTH, requires_grad=True), torch.randn(1, 5, WIDTH, requires_grad=True)
    out, _ = mixer(x, None, context_of([[4]], [[5]], hidden, width=4))
    towards, leaves = torch.randn(4, WIDTH), [x, hidden, *mixer.parameters()]
    expected, _ = by_hand(mixer, x[0], hidden[0])
    grads = [torch.autograd.grad((each * towards).sum(), leaves) for each in (out[0], expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_no_token_is_told_by_a_later_one_or_by_another_pair(mixer):
    x, hidden = torch.randn(2, 6, WIDTH, requires_grad=True), torch.randn(2, 7, WIDTH, requires_grad=True)
    context = context_of([[3, 2], [5]], [[4, 1], [6]], hidden)
    out, _ = mixer(x, None, context)
    weights = torch.randn(WIDTH)
    for i in range(5):
        to_x, to_h = torch.autograd.grad((out[0, i] * weights).sum(), (x, hidden), retain_graph=True)
        first, until, begin, end = (0, i, 0, 4) if i < 3 else (3, i, 4, 5)
        touched = to_x.abs().sum(-1) > 0
        assert touched.flatten().nonzero()[:, 0].tolist() == list(range(first, until + 1))
        touched = (to_h.abs().sum(-1) > 0).flatten().nonzero()[:, 0].tolist()
        ends = sorted({begin, end - 1}) if mixer.score is None else list(range(begin, end))
        assert touched == ends


def test_bfloat16_stays_near_fp32(mixer):
    x, hidden = torch.randn(3, 6, WIDTH), torch.randn(3, 7, WIDTH)
    expected, _ = mixer(x, None, context_of(TARGETS, SOURCES, hidden))
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = mixer(x, None, context_of(TARGETS, SOURCES, hidden))
    real = context_of(TARGETS, SOURCES, hidden).query.document >= 0
    torch.testing.assert_close(out.float()[real], expected[real], atol=0.05, rtol=0.05)


def model_of(spec: RecurrentAcross):
    r = recipe("rnn_attention_mini")
    r.encoder.width, r.encoder.vocab, r.encoder.init = WIDTH, 20, 0.5
    r.decoder.stack.block.mixer = spec
    return build(r).eval()


@pytest.mark.parametrize("name", MIXERS)
def test_what_is_carried_is_what_would_be_read_again(name):
    model, source = model_of(MIXERS[name]), pad_sources([[5, 6, 7, 8, 3], [9, 3], [11, 12, 3]])
    tokens = torch.randint(20, (3, 5))
    cached, again = IncrementalReader(model, source=source), IncrementalReader(model, cache=False, source=source)
    for begin, end in ((0, 1), (1, 2), (2, 5)):
        logits = cached.read(tokens[:, begin:end])
        torch.testing.assert_close(logits, again.read(tokens[:, begin:end]), atol=1e-5, rtol=1e-5)
    for reader in (cached, again):
        reader.keep(torch.tensor([2, 0, 0]))
    more = torch.randint(20, (3, 1))
    torch.testing.assert_close(cached.read(more), again.read(more), atol=1e-5, rtol=1e-5)


def test_a_row_of_several_documents_has_no_state_of_its_own():
    layer = RecurrentAcross(Dot()).build(WIDTH)
    context = context_of([[3, 2]], [[4, 1]], torch.randn(1, 7, WIDTH), carry=True)
    with pytest.raises(ValueError, match="some row here has several documents"):
        layer(torch.randn(1, 6, WIDTH), None, context)


def test_sides_that_are_missing_are_refused():
    r = recipe("rnn_attention_mini")
    r.encoder.stack.block.mixer = RecurrentAcross(None)
    with pytest.raises(RecipeError, match="an encoder has nothing but its own rows to attend to"):
        check(r, "r")
    with pytest.raises(RecipeError, match="half of a source's vector was read from its end, and 255 is odd"):
        RecurrentAcross(None).fit("mixer", 255)
    with pytest.raises(ValueError, match=r"needs context\.source"):
        RecurrentAcross(None).build(WIDTH)(torch.randn(1, 3, WIDTH), None, packed([[3]], 3, "causal"))


def test_padding_of_the_source_is_not_looked_at():
    model = model_of(RecurrentAcross(Additive()))
    alone, beside = pad_sources([[5, 6, 3]]), pad_sources([[5, 6, 3], [7] * 9])
    targets = pad_sources([[2, 4, 4]])
    first = IncrementalReader(model, source=alone).read(targets.tokens)
    second = IncrementalReader(model, source=beside).read(targets.tokens.expand(2, -1))[:1]
    torch.testing.assert_close(first, second)
