"""Longformer's recipes, and what windows make of others: a causal Longformer, shared layers, windows with memory."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.context import Context
from clozeworks.inference.generation import IncrementalReader
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.bias.within import Within
from clozeworks.nn.block import Block
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.window import Window
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost
from tests.test_golden import losses_of, shrink, write_text
from tests.toys import packed


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_text(tmp_path_factory.mktemp("text"))


def small(r: Recipe, windows: tuple[Window, ...] = ()) -> Recipe:
    """Few units, and a window for each layer."""
    r = shrink(r)
    r.encoder.vocab, r.encoder.stack.depth = 50, len(windows) or r.encoder.stack.depth
    block = r.encoder.stack.block_at(0)
    if windows:
        mixers = (replace(copy.deepcopy(block.mixer), window=window) for window in windows)
        r.encoder.stack.block = tuple(replace(block, mixer=mixer) for mixer in mixers)
    return r


def blocks(r: Recipe) -> tuple[Block, ...]:
    assert isinstance(r.encoder.stack.block, tuple)
    return r.encoder.stack.block


def hidden(model: Any, length: int, kind: Any = "full") -> torch.Tensor:
    tokens = torch.arange(2 * length).view(2, length) * 7 % 50
    context = packed([[length]] * 2, length, kind)
    return model.encoder(tokens, context.query, context).last


def twin(model: Any, r: Recipe) -> Any:
    """Another recipe with the same weights."""
    other = build(r)
    other.load_state_dict(model.state_dict())
    return other


# ---- the recipes


def test_what_the_paper_changes_of_its_next_of_kin():
    changed = cw.diff("roberta_base", "longformer_base")
    assert set(changed) == {
        "name",
        "encoder.embed.positions.length",
        "encoder.stack.block",
        "objective.segments.length",
        "train.steps",
        "train.batch_tokens",
        "train.learning_rate",
        "train.warmup",
        "train.schedule",
    }
    r = recipe("longformer_base")
    assert list(r.encoder.stack.mixers()) == [GlobalWindow(12, Window(256), 0.1)] * 12
    assert len({id(mixer.window) for mixer in r.encoder.stack.mixers()}) == 12, "each layer its own"
    spec.set_path(r, "encoder.stack.block.3.mixer.window.left", "64")
    assert [mixer.window.left for mixer in r.encoder.stack.mixers()].count(64) == 1


def test_windows_grow_from_bottom_to_top():
    mini, letters = recipe("longformer_mini"), recipe("longformer_enwik8")
    assert [mixer.window.left for mixer in mini.encoder.stack.mixers()] == [16, 32, 64, 128]
    windows = [mixer.window for mixer in letters.encoder.stack.mixers()]
    assert (windows[0].left, windows[-1].left) == (32, 512)
    assert sorted(window.left for window in windows) == [window.left for window in windows]
    assert {window.after for window in windows} == {0}
    assert [window.dilation[-1] for window in windows] == [1] * 6 + [2, 2, 3, 3, 4, 4]
    assert {window.dilation[:-2] for window in windows} == {(1,) * 6}
    assert cw.count_parameters("longformer_enwik8") == cw.count_parameters("transformer_xl_enwik8")


def test_a_text_of_4096_tokens_is_trained_on():
    r = recipe("longformer_mini_4k")
    assert r.longest() == 4096
    assert r.train.batch_tokens == 4096
    spec.check(r, r.name)
    assert r.encoder.embed.positions.length == 4096


# ---- windows in others


def test_a_causal_longformer(data):
    """GPT, each token beside those before it."""
    windows = tuple(Window(n, right=0) for n in (2, 4, 8))
    near, wide = (small(recipe("gpt_mini"), given) for given in (windows, (Window(40, right=0),) * 3))
    model = build(near)
    before, after = build(small(recipe("gpt_mini"), (None,) * 3)), twin(model, wide)
    before.load_state_dict(model.state_dict())
    torch.testing.assert_close(hidden(before, 20, "causal"), hidden(after, 20, "causal"), atol=2e-6, rtol=1e-5)
    first = hidden(model, 20, "causal")
    assert (first - hidden(after, 20, "causal")).abs().max() > 1e-3
    seen = torch.autograd.functional.jacobian(lambda x: run(model, x, "causal")[0, 15], torch.randn(1, 20, 32))
    assert seen.abs().sum((0, 1, 3)).nonzero().flatten().tolist() == list(range(1, 16)), "14 back: 2 + 4 + 8"
    losses = losses_of(near, data)
    assert losses[-1] < losses[0]


def run(model: Any, x: torch.Tensor, kind: Any) -> torch.Tensor:
    return model.encoder.stack(x, packed([[x.shape[1]]], x.shape[1], kind)).last


def test_a_causal_longformer_writes_on_with_what_it_has_read():
    r = small(recipe("gpt_mini"), (Window(2, right=0), Window(5, right=0)))
    model, tokens = build(r).eval(), torch.randint(0, 50, (2, 12))
    results = []
    for cache in (True, False):
        reader = IncrementalReader(model, cache)
        results.append(
            torch.stack([reader.read(tokens[:, :6]), *(reader.read(tokens[:, n : n + 1]) for n in range(6, 12))])
        )
    torch.testing.assert_close(*results, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("marked", [False, True])
def test_layers_that_share_weights_and_not_windows(marked, data):
    """ALBERT with a window for each depth: as many parameters as with one layer, the numbers of layers with copies."""
    windows = (Window(1), Window(3), Window(6))
    r = small(recipe("albert_mini"), windows)
    if marked:
        for block in blocks(r):
            block.mixer = GlobalWindow(2, block.mixer.window)
    model = build(r)
    plain = cw.count_parameters(small(recipe("albert_mini"), (Window(1),)))
    assert sum(p.numel() for p in model.parameters()) == plain + marked * 3 * (32 * 32 + 32)
    apart = copy.deepcopy(r)
    apart.encoder.stack.share.attention = apart.encoder.stack.share.ffn = None
    torch.testing.assert_close(hidden(model, 20), hidden(twin(model, apart), 20))
    seen = torch.autograd.functional.jacobian(lambda x: run(model, x, "full")[0, 10], torch.randn(1, 24, 32))
    assert seen.abs().sum((0, 1, 3)).nonzero().flatten().tolist() == list(range(21)), "10 to each side: 1 + 3 + 6"
    losses = losses_of(r, data)
    assert losses[-1] < losses[0]


def test_windows_with_memory(data):
    """Transformer-XL whose tokens see so far back, whether it was read now or before."""
    r = small(recipe("transformer_xl_mini"), (Window(6, right=0),) * 2)
    r.encoder.stack.memory = 16
    model = build(r)
    for name, parameter in model.named_parameters():
        if name.endswith((".u", ".v")):
            torch.nn.init.normal_(parameter, 0, 0.5)
    reach = copy.deepcopy(r)
    for block in blocks(reach):
        block.mixer.bias, block.mixer.window = Within(7, block.mixer.bias), None
    other = build(reach)
    renamed = {name.replace("mixer.bias.", "mixer.bias.bias."): value for name, value in model.state_dict().items()}
    other.load_state_dict(renamed)
    torch.testing.assert_close(segments(model), segments(other), atol=2e-6, rtol=1e-5)
    whole = hidden(model, 24, "causal")
    torch.testing.assert_close(segments(model), whole, atol=2e-6, rtol=1e-5)
    losses = losses_of(r, data)
    assert losses[-1] < losses[0]


def segments(model: Any) -> torch.Tensor:
    """Three segments of 8 tokens, each after what is remembered."""
    tokens, whole = torch.arange(48).view(2, 24) * 7 % 50, packed([[24]] * 2, 24, "causal")
    past, out = None, []
    for first in (0, 8, 16):
        side = whole.query.each(lambda value, first=first: value[:, first : first + 8])
        result = model.encoder(tokens[:, first : first + 8], side, Context.make(side, side, "causal", past=past))
        past = result.memory
        out.append(result.last)
    return torch.cat(out, 1)


def test_a_window_that_covers_the_text_is_no_window():
    r = small(recipe("roberta_mini"), (Window(30),) * 2)
    model, plain = build(r).eval(), small(recipe("roberta_mini"))
    without = twin(model, plain)
    assert isinstance(plain.encoder.stack.block_at(0).mixer, Attention)
    ids = torch.randint(5, 50, (2, 30))
    here, there = (TextEncoder(m.eval(), None, each).forward(ids) for m, each in ((model, r), (without, plain)))
    torch.testing.assert_close(here.logits, there.logits, atol=2e-6, rtol=1e-5)


def test_arithmetic_is_that_of_the_windows():
    r, width = recipe("longformer_base"), 768
    result = measure_cost(r).arithmetic["encoder.stack.blocks.0.mixer"]
    assert result == 2 * 4 * width**2 + 2 * 2 * 513 * width, (
        "four products of the vectors, and the keys of a window twice"
    )
