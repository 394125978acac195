"""The Lite Transformer's numbers: parameters, multiply-adds, and what stands behind them.

python -m tests.recipes.test_lite_transformer prints the table of docs/attention_and_convolution.md.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.spec import walk
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.mixers.split import Split
from clozeworks.recipe import build, count_parameters
from clozeworks.train.resources.cost import measure_cost, multiply_adds

PAGE = Path(__file__).parents[2] / "docs" / "attention_and_convolution.md"
LITE = [name for name in cw.recipes() if name.startswith("lite_transformer")]


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("transformer_base", 44_138_496),
        ("lite_transformer_wmt", 17_283_616),
        ("lite_transformer_wmt_408", 11_739_792),
        ("lite_transformer_wmt_200", 2_884_400),
    ],
)
def test_parameters_outside_the_table_of_words(name, blocks):
    r = cw.recipe(name)
    assert count_parameters(r, heads=False) - r.encoder.vocab * r.encoder.width == blocks


@pytest.mark.parametrize(("length", "plain", "lite"), [(30, 1338, 529), (100, 4588, 1846), (1000, 62472, 29172)])
def test_multiply_adds_are_those_of_the_paper(length, plain, lite):
    """Millions; the ratio is the 2.5 that the paper tells of, and falls as attention takes over."""
    results = [multiply_adds(cw.recipe(name), length) for name in ("transformer_base", "lite_transformer_wmt")]
    assert [round(count / 1e6) for count in results] == [plain, lite]
    assert round(results[0] / results[1], 2) == {30: 2.53, 100: 2.49, 1000: 2.14}[length]


def test_multiply_adds_by_hand():
    """Of one layer that reads: width 256, kernel 7, 30 tokens."""
    r = cw.recipe("lite_transformer_lm_mini")
    r.encoder.stack.depth, r.encoder.stack.block = 1, r.encoder.stack.block_at(1)
    attention, products = 4 * 128 * 128 + 2 * 30 * 128, 2 * 256 * 256
    convolution = 128 * 256 + 128 * 128 + 128 * 4 * 7 + 128 * 7
    assert multiply_adds(r, 30) == 30 * (attention + convolution + products)


def test_two_branches_and_a_flat_feed_forward_part_in_every_layer():
    for name in LITE:
        r = cw.recipe(name)
        stacks = [r.encoder.stack] + ([r.decoder.stack] if r.decoder is not None else [])
        for stack in stacks:
            assert isinstance(stack.block, tuple)
            assert len(stack.block) == stack.depth
            for block in stack.block:
                assert isinstance(block.mixer, Split)
                assert [type(branch) for branch in block.mixer.branches] == [Attention, LightConv]
                assert block.mixer.each(r.encoder.width) == (r.encoder.width // 2,) * 2
                assert isinstance(block.ffn, FeedForward)
                assert block.ffn.inner == r.encoder.width
    decoder = cw.recipe("lite_transformer_wmt").decoder
    assert decoder is not None
    kernels = [part.kernel for _, part in walk(decoder) if isinstance(part, LightConv)]
    assert kernels == [3, 7, 15, 31, 31, 31]


@pytest.mark.parametrize("name", ["lite_transformer_mini", "lite_transformer_lm_mini"])
def test_what_a_recipe_costs_is_reported(name):
    cost = measure_cost(cw.recipe(name))
    assert cost.parameters == count_parameters(cw.recipe(name))
    assert cost.flops > 0
    assert cost.memory > cost.fixed


def test_the_small_language_model_continues_a_text_with_and_without_what_it_has_read():
    r = cw.recipe("lite_transformer_lm_mini")
    r.encoder.vocab = 300
    model = build(r)
    prompt = list(range(5, 25))
    cached, anew = (sample(IncrementalReader(model, cache), prompt, 10, Sampling(0))[0] for cache in (True, False))
    assert cached.tokens == anew.tokens
    assert cached.score == pytest.approx(anew.score, rel=1e-4)


def test_padded_pairs_are_as_alone():
    r = cw.recipe("lite_transformer_mini")
    r.encoder.vocab = 300
    model = build(r).eval()
    torch.manual_seed(0)
    source, target = torch.randint(5, 300, (2, 9)), torch.randint(5, 300, (2, 8))
    real, written = (torch.ones_like(tokens) for tokens in (source, target))
    real[1, 6:], written[1, 5:] = 0, 0
    both = from_padded(target, written, kind="causal")
    both = both.replace(source=from_padded(source, real))
    alone = from_padded(target[1:, :5], kind="causal").replace(source=from_padded(source[1:, :6]))
    with torch.no_grad():
        together, single = (model.read(batch, ()).last for batch in (both, alone))
    torch.testing.assert_close(together[1, :5], single[0], atol=2e-5, rtol=1e-4)


def rows() -> Iterator[str]:
    """The table of docs/attention_and_convolution.md."""
    base = None
    for name in ("transformer_base", "lite_transformer_wmt", "lite_transformer_wmt_408", "lite_transformer_wmt_200"):
        r = cw.recipe(name)
        blocks = count_parameters(r, heads=False) - r.encoder.vocab * r.encoder.width
        counts = [multiply_adds(r, length) for length in (30, 100, 1000)]
        base = base or counts
        cells = [f"{a / 1e6:,.0f} ({b / a:.2f})" for a, b in zip(counts, base, strict=True)]
        yield f"| `{name}` | {r.encoder.width} | {blocks:,} | {' | '.join(cells)} |"


def test_the_page_tells_these_numbers():
    page = PAGE.read_text(encoding="utf-8")
    for row in rows():
        assert row in page


if __name__ == "__main__":
    print("\n".join(rows()))
