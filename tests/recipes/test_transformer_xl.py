"""What the recipes say of the model, and what is written of it."""

import torch

import clozeworks as cw
from clozeworks.core.context import Context
from clozeworks.core.spec import fields_of, to_dict
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Share, Stack
from clozeworks.optim.parameter_groups import decays
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.toys import packed


def test_every_field_is_written():
    stack = to_dict(recipe("bert_base"))["encoder"]["stack"]
    assert list(stack) == ["part", *fields_of(Stack)]
    assert list(stack["share"]) == ["part", *fields_of(Share)]
    assert list(stack["block"]["mixer"]) == ["part", *fields_of(Attention)]
    assert list(stack["block"]["ffn"]) == ["part", *fields_of(FeedForward)]


def test_it_reads_on_with_memory_as_it_reads_at_once():
    """One layer, so that the memory holds all there was; two rows of 5 after 6, and 11 at once."""
    r = recipe("transformer_xl_mini")
    r.encoder.vocab, r.encoder.stack.depth = 50, 1
    model = build(r)
    tokens, whole = torch.randint(0, 50, (2, 11)), packed([[11]] * 2, 11, "causal")
    expected, past, out = model.encoder(tokens, whole.query, whole).last, None, []
    for first, last in ((0, 6), (6, 11)):
        side = whole.query.each(lambda v, first=first, last=last: v[:, first:last])
        hidden = model.encoder(tokens[:, first:last], side, Context.make(side, side, "causal", past=past))
        past = hidden.memory
        out.append(hidden.last)
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=2e-6, rtol=1e-5)


def test_no_vector_of_a_bias_decays():
    results = {name: decays(name, p) for name, p in build(cw.recipe("transformer_xl_mini")).named_parameters()}
    assert not results["encoder.stack.blocks.0.mixer.bias.u"]
    assert results["encoder.stack.blocks.0.mixer.bias.position.weight"]
    assert not any(".query.bias" in name for name in results)
