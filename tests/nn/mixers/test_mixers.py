"""The contract every mixer must keep, run over all of them and every backend."""

import dataclasses

import pytest
import torch

from clozeworks.core.context import AttentionCapture, Context, Source
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.token_info import TokenInfo, visible
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.shaw import Shaw
from clozeworks.nn.bias.within import Within
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels import blocks, windowed
from clozeworks.nn.mixer import Bias, BiasLayer, Mixer
from clozeworks.nn.mixers.attention import Attention, AttentionLayer
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.global_window import GlobalWindow, GlobalWindowLayer
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.mixers.lsh import LSH, LSHLayer
from clozeworks.nn.mixers.lstm import LSTM, LSTMLayer
from clozeworks.nn.mixers.ngram import Ngram
from clozeworks.nn.mixers.recurrent import BothWays, Recurrent
from clozeworks.nn.mixers.split import Split
from clozeworks.nn.positions import Rotary
from clozeworks.nn.window import Window
from tests.promises import verify_promises
from tests.toys import packed

WIDTH = 24


@dataclasses.dataclass(slots=True)
class Distance(Bias):
    """A toy bias: further is less, and pairs at a distance of exactly 3 are forbidden."""

    slope: float = 0.3

    def build(self, width, heads, head_width):
        return DistanceLayer(self.slope, heads)


class DistanceLayer(BiasLayer):
    def __init__(self, slope, heads):
        super().__init__()
        self.slope = torch.nn.Parameter(slope * torch.arange(1, heads + 1.0))

    def forward(self, q, context, scale):
        distance = context.query.position[:, None, :, None] - context.memory.position[:, None, None, :]
        return q + 0.1, -self.slope[:, None, None] * distance.abs(), distance.abs() != 3


MIXERS: dict[str, Mixer] = {
    "attention": Attention(4),
    "attention+rotary": Attention(4, rotary=Rotary(base=100.0)),
    "attention+rotary+window": Attention(3, window=Window(2, 3), rotary=Rotary()),
    "attention+bias": Attention(3, bias=Distance()),
    "attention+relative": Attention(3, bias=Relative(clamp=5, segments=True), affine=False),
    "attention+shaw": Attention(3, bias=Shaw(2)),
    "attention+within": Attention(3, bias=Within(4, Relative()), affine=False),
    "attention+window": Attention(3, window=Window(2, 3, (1, 1, 2))),
    "attention+window+relative": Attention(3, bias=Relative(), affine=False, window=Window(2)),
    "global window": GlobalWindow(3, Window(2)),
    "local": LocalAttention(3, head_width=5, chunk=16),
    "lsh": LSH(3, head_width=5, chunk=16),
    "convolution": LightConv(4, kernel=21),  # as far as the longest row here
    "convolution+dynamic": LightConv(3, kernel=20, dynamic=True, gate=False),
    "split": Split((Attention(2), LightConv(2, kernel=21, dynamic=True))),
    "split+widths": Split((LightConv(2, kernel=21), Attention(2, bias=Relative()), Attention(2)), (8, 12, 4)),
    "attention+span": Attention(3, bias=AdaptiveSpan(9, Relative(), ramp=9), affine=False),
    "attention+table": Attention(3, bias=AdaptiveSpan(9, DistanceTable(9), ramp=9), affine=False),
    "recurrence": LSTM(),
    "recurrence+projection": LSTM(40),
    "recurrence+clips": LSTM(40, clip=3.0, clip_out=3.0),
    "ngram": Ngram(22, WIDTH),
    "recurrent": Recurrent(),
    "recurrent+lstm": Recurrent("lstm"),
    "both ways": BothWays(),
    "both ways+lstm": BothWays("lstm"),
    "recurrence+drops": LSTM(weight_drop=0.5, locked=0.4),
}
BLIND = {"attention+table"}  # to the token itself
BACKENDS = ["dense", "sdpa", "documents", "auto"]


def backends_of(mixer: Mixer) -> list[str]:
    """All where a part of it attends by `backends.attend`; the others have their definition and one fast path."""
    parts = mixer.build(WIDTH).modules()
    return (
        BACKENDS if any(isinstance(part, AttentionLayer | GlobalWindowLayer) for part in parts) else ["dense", "auto"]
    )


KINDS = [(name, kind) for name, mixer in MIXERS.items() for kind in ("full", "causal") if kind in mixer.honours]
CASES = [
    (name, kind, backend) for name, kind in KINDS
    for backend in backends_of(MIXERS[name])
]  # fmt: skip
CONTEXTS = {
    "one": ([[1]], 1),
    "odd": ([[7], [7]], 7),
    "padded": ([[5], [2], [7]], 7),
    "packed": ([[3, 4], [1, 2, 2], [7]], 7),
}


@pytest.fixture(params=MIXERS)
def mixer(request):
    torch.manual_seed(0)
    mixer = MIXERS[request.param].build(WIDTH)
    mixer.blind, mixer.kind = request.param in BLIND, "full" if "full" in MIXERS[request.param].honours else "causal"
    for module in mixer.modules():
        if isinstance(module, CustomInit):  # its vectors begin at nothing
            for parameter in module.parameters(recurse=False):
                torch.nn.init.normal_(parameter, 0.0 if isinstance(module, LSTMLayer) else 0.3, 0.3)
    return mixer


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Fast paths for long rows are taken by short ones too."""
    monkeypatch.setattr(windowed, "SHORT", -1000)
    monkeypatch.setattr(windowed, "QUERIES", 3)
    monkeypatch.setattr(blocks, "QUERIES", 1)


def needs(request, memory):
    if memory not in MIXERS[request.node.callspec.params["mixer"]].takes:
        pytest.skip(f"takes no {memory}")


def apply(mixer, x, context):
    return mixer(x, None, context)[0]


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize(
    ("mixer", "kind", "backend"), [each for each in CASES if each[2] != "dense"], indirect=["mixer"]
)
def test_every_backend_equals_the_dense_definition(mixer, kind, backend, name):
    lengths, width = CONTEXTS[name]
    context = packed(lengths, width, kind, backend=backend)
    verify_promises(context)
    x = torch.randn(len(lengths), width, WIDTH)
    dense = apply(mixer, x, context.replace(backend="dense", scratch={}))
    torch.testing.assert_close(apply(mixer, x, context), dense, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("mixer", "kind", "backend"), CASES, indirect=["mixer"])
def test_packed_equals_alone(mixer, kind, backend):
    lengths = [[3, 4], [1, 2, 2], [7]]
    context = packed(lengths, 7, kind, backend=backend)
    x = torch.randn(3, 7, WIDTH)
    out = apply(mixer, x, context)
    for row, documents in enumerate(lengths):
        at = 0
        for length in documents:
            alone = apply(mixer, x[row : row + 1, at : at + length], packed([[length]], length, kind))
            torch.testing.assert_close(out[row, at : at + length], alone[0], atol=2e-6, rtol=1e-5)
            at += length


@pytest.mark.parametrize(("mixer", "kind", "backend"), CASES, indirect=["mixer"])
def test_no_output_depends_on_what_it_may_not_see(mixer, kind, backend):
    """By gradient: output i has none to a hidden input j, and some to a visible one."""
    context = packed([[3, 2], [4]], 6, kind, backend=backend)
    x = torch.randn(2, 6, WIDTH, requires_grad=True)
    out = apply(mixer, x, context)
    seen = visible(context.query, context.memory)
    weights = torch.randn(WIDTH)
    for row in range(2):
        for i in range(6):
            (gradient,) = torch.autograd.grad((out[row, i] * weights).sum(), x, retain_graph=True)
            touched = gradient.abs().sum(-1) > 0
            assert not bool(touched[1 - row].any()), "rows are not independent"
            hidden = ~seen[row, i]
            hidden[i] = False  # a token is always its own query
            assert not bool(touched[row][hidden].any())
            forbidden = (context.query.position[row, i] - context.memory.position[row]).abs() == 3
            must = seen[row, i] & ~forbidden
            if getattr(mixer, "window", None) is not None:
                must &= mixer.window.near(context)[row, :, i].any(0)
            must[i] &= not isinstance(mixer, LSHLayer)  # which is no key of its own, and of one key asks nothing
            if mixer.blind:
                must[i] = False
            assert bool(touched[row][must].all())


@pytest.mark.parametrize("sizes", [[1] * 9, [3, 3, 3], [7, 2], [9]])
def test_cached_equals_uncached(mixer, sizes, request):
    needs(request, "carry")
    x = torch.randn(2, 9, WIDTH)
    whole = packed([[9], [9]], 9, "causal")
    expected = apply(mixer, x, whole)
    carry, at, out = None, 0, []
    for size in sizes:
        query = whole.query.each(lambda v, at=at, size=size: v[:, at : at + size])
        memory = whole.query.each(lambda v, end=at + size: v[:, :end])
        context = Context.make(query, memory, "causal", offset=at, carry=True)
        verify_promises(context)
        rows = x[:, at : at + size]
        carry = mixer.extend(carry, rows)
        mixed, given = mixer(rows, carry, context)
        assert given is carry
        out.append(mixed)
        at += size
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)


def test_older_rows_as_memory_equal_one_long_row(mixer, request):
    """Transformer-XL's form: hidden rows before the query's own."""
    needs(request, "rows")
    x = torch.randn(2, 10, WIDTH)
    whole = packed([[10], [10]], 10, "causal")
    expected = apply(mixer, x, whole)[:, 6:]
    query = whole.query.tail(4)
    context = Context.make(query, query, "causal").after(whole.query.each(lambda v: v[:, :6]))
    verify_promises(context)
    mixed, _ = mixer(x[:, 6:], x, context)
    torch.testing.assert_close(mixed, expected, atol=2e-6, rtol=1e-5)
    forgotten = Context.make(query, query, "causal").after(
        whole.query.each(lambda v: v[:, :6]).forget(torch.tensor([True, False]))
    )
    mixed, _ = mixer(x[:, 6:], x, forgotten)
    alone = Context.make(query, query, "causal")
    torch.testing.assert_close(mixed[0], apply(mixer, x[:, 6:], alone)[0], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(mixed[1], expected[1], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("backend", ["dense", "sdpa"])
def test_two_streams_share_keys_and_the_query_stream_is_blind_to_itself(backend):
    """XLNet's form: g asks, [h] answers; keys are projected once."""
    torch.manual_seed(0)
    mixer = Attention(4).build(WIDTH)
    h = torch.randn(1, 5, WIDTH, requires_grad=True)
    g = torch.randn(1, 5, WIDTH)
    rank = torch.tensor([[3, 1, 5, 2, 4]])
    nought = torch.zeros_like(rank)
    content = TokenInfo(torch.arange(5)[None], nought, rank, rank)
    asking = TokenInfo(torch.arange(5)[None], nought, rank, rank - 1)
    keys = mixer.extend(None, h)
    mixed_h, _ = mixer(h, keys, Context.make(content, content, "order", None))
    mixed_g, _ = mixer(g, keys, Context.make(asking, content, "order", None, backend=backend))
    weights = torch.randn(WIDTH)
    for i in range(5):
        (to_h,) = torch.autograd.grad((mixed_g[0, i] * weights).sum(), h, retain_graph=True, allow_unused=True)
        touched = to_h[0].abs().sum(-1) > 0
        assert touched.tolist() == (rank[0] < rank[0, i]).tolist()
    first = int((rank[0] == 1).nonzero())
    bias_only = mixer.out(torch.zeros(WIDTH))
    torch.testing.assert_close(mixed_g[0, first], bias_only)  # sees nothing: gives nothing, not an average
    assert mixed_h.shape == h.shape


@pytest.mark.parametrize("backend", ["dense", "sdpa"])
def test_cross_attention_packs_pairs_by_document(backend):
    torch.manual_seed(0)
    mixer = Attention(4).build(WIDTH)
    target, source = packed([[2, 3]], 6, "causal", backend=backend), packed([[4, 2]], 7)
    x, s = torch.randn(1, 6, WIDTH), torch.randn(1, 7, WIDTH)
    across = target.replace(source=Source(s, source.query)).across()
    out, _ = mixer(x, mixer.extend(None, s), across)
    for (a, b), (c, d) in (((0, 2), (0, 4)), ((2, 5), (4, 6))):
        alone = packed([[b - a]], b - a, "causal")
        side = packed([[d - c]], d - c).query
        view = alone.replace(source=Source(s[:, c:d], side)).across()
        expected, _ = mixer(x[:, a:b], s[:, c:d], view)
        torch.testing.assert_close(out[:, a:b], expected, atol=2e-6, rtol=1e-5)


def test_dropout_on_weights_is_keyed_and_unbiased():
    torch.manual_seed(0)
    mixer = Attention(4, dropout=0.3).build(WIDTH)
    x = torch.randn(2, 7, WIDTH)
    plain = apply(mixer, x, packed([[7], [7]], 7))
    total = torch.zeros_like(plain)
    for step in range(300):
        context = packed([[7], [7]], 7, key=DropoutKey.make(step))
        out = apply(mixer, x, context)
        assert torch.equal(out, apply(mixer, x, packed([[7], [7]], 7, key=DropoutKey.make(step))))
        total += out
    torch.testing.assert_close(total / 300, plain, atol=0.08, rtol=0)


def test_taps_give_the_weights(mixer):
    capture = AttentionCapture()
    context = packed([[3, 4]], 7, mixer.kind, capture=capture)
    apply(mixer, torch.randn(1, 7, WIDTH), context)
    if not any(isinstance(part, AttentionLayer) for part in mixer.modules()):
        pytest.skip("attends to nothing")
    (weights,) = capture.captured.values()
    sums = torch.ones_like(weights[..., 0])
    if mixer.blind:
        sums[..., [0, 3]] = 0
    torch.testing.assert_close(weights.sum(-1), sums)
    assert not bool(weights[0, :, :3, 3:].any())


@pytest.mark.parametrize(("mixer", "kind"), KINDS, indirect=["mixer"])
def test_bfloat16_stays_near_fp32(mixer, kind):
    context = packed([[3, 4]], 7, kind)
    x = torch.randn(1, 7, WIDTH)
    expected = apply(mixer, x, context)
    with torch.autocast("cpu", torch.bfloat16):
        out = apply(mixer, x, context.replace(scratch={}))
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.05)
