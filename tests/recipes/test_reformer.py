"""What the recipes say of the model; and that a reversible stack is a line of any recipe."""

import copy

import pytest
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.dropout import DropoutKey
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.window import Window
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.recipes import recipe


def test_the_published_shape_has_as_many_parameters():
    r = recipe("reformer_enwik8")
    d, ff, vocab = 1024, 4096, 258
    local, hashed = 4 * d * d, 3 * d * d
    layer = 2 * 2 * d + 2 * d * ff + ff + d
    words, positions = vocab * d, 128 * 256 + 512 * 768
    assert [type(r.encoder.stack.block_at(n).mixer) is LSH for n in range(12)] == [n in (2, 6, 10) for n in range(12)]
    assert count_parameters(r, heads=False) == words + positions + 9 * local + 3 * hashed + 12 * layer + 2 * 2 * d
    assert count_parameters(r) == count_parameters(r, heads=False) + vocab * 2 * d  # the head is not tied


@pytest.mark.parametrize("length", [1, 31, 100, 300])
def test_rows_of_any_length(length):
    r = recipe("reformer_mini")
    r.encoder.vocab = 60
    model = build(r)
    batch = from_padded(torch.randint(0, 60, (2, length)), kind="causal")
    batch.targets = batch.labels = torch.arange(2 * length) % 60
    batch.targets = torch.arange(2 * length)
    model(batch, DropoutKey.make(1, rows=range(2))).losses["next_token"].backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def reversible(name: str, mixer=None) -> Recipe:
    r = recipe(name)
    r.encoder.vocab, r.encoder.stack.depth = 60, 4
    block = copy.deepcopy(r.encoder.stack.block_at(0))
    block.place, block.mixer = "pre", mixer or block.mixer
    r.encoder.stack = Reversible(4, block, r.encoder.stack.share, norm=LayerNorm())
    return r


@pytest.mark.parametrize(
    "r",
    [
        reversible("albert_mini"),
        reversible("bert_mini"),
        reversible("gpt_mini"),
        reversible("roberta_mini", GlobalWindow(4, Window(3))),
        reversible("gpt_mini", Attention(4, window=Window(3, 0))),
        reversible("spanbert_mini", LSH(4, chunk=8)),
    ],
    ids=["albert", "bert", "gpt", "longformer", "window", "lsh"],
)
def test_a_reversible_stack_is_one_line_of_any_recipe(r):
    """Trained as it is and by ordinary autograd: the same losses and gradients."""
    model, kind = build(r), "causal" if r.name == "gpt_mini" else "full"
    stack = model.encoder.stack
    batch = from_padded(torch.randint(0, 60, (2, 20)), kind=kind)
    if "GlobalWindow" in str(r):
        batch = from_padded(batch.tokens, kind=kind, marked=torch.arange(20).expand(2, 20) == 0)
    results = []
    for stack.inverts in (True, False):
        context = batch.context(key=DropoutKey.make(1, rows=range(2)))
        last = model.encoder(batch.tokens, batch.token_info, context).last
        weight = torch.linspace(-1, 1, last.shape[-1])
        results.append([last.detach(), *torch.autograd.grad((last * weight).sum(), list(stack.parameters()))])
    largest = max(float(each.abs().max()) for each in results[1])
    for inverted, ordinary in zip(*results, strict=True):
        assert float((inverted - ordinary).abs().max()) < 1e-5 * largest
    if r.name == "albert_mini":
        sets = {id(block.mixer.query.weight) for block in stack.blocks}
        assert len(sets) == 1
