"""Tables of a head's own, beside those that it shares with the way in."""

import pytest
import torch
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.spec import to_dict
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.recipe import build, count_parameters


def recipe(name: str, loss):
    r = cw.recipe(name)
    r.encoder.vocab, r.encoder.width, r.encoder.pooler = 30, 64, None
    block = r.encoder.stack.block_at(0)
    block.place = "pre"
    block.mixer.heads = 4
    r.encoder.stack, r.objective.losses = Reversible(2, block, norm=LayerNorm()), (loss,)
    return r


LOSSES = {
    "gpt_mini": (NextToken(tied=False), NextToken(tied=False, bias=True)),
    "roberta_mini": (MaskedLM(plain=True),),
}
CASES = [(name, loss) for name, losses in LOSSES.items() for loss in losses]


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_logits_are_a_product_with_a_table_as_wide_as_the_stack_gives(name, loss):
    r = recipe(name, loss)
    model = build(r)
    head = model.heads[loss.name]
    assert head.head.weight.shape == (30, 128)
    assert 0.015 < float(head.head.weight.detach().std()) < 0.025
    batch = from_padded(torch.randint(0, 30, (2, 9)), kind="causal" if name == "gpt_mini" else "full")
    batch.targets, batch.labels = torch.tensor([0, 4, 11]), torch.tensor([1, 2, 3])
    torch.nn.init.normal_(head.head.weight)
    if getattr(loss, "bias", False):
        torch.nn.init.normal_(head.bias)
    output = model(batch)
    at = output.hidden.last.flatten(0, 1)[batch.targets]
    logits = at @ head.head.weight.t() + (0 if head.bias is None else head.bias)
    torch.testing.assert_close(head.logits(at), logits)
    torch.testing.assert_close(output.losses[loss.name], F.cross_entropy(logits, batch.labels, reduction="sum"))
    own = 30 * 128 + (30 if head.bias is not None else 0)
    assert count_parameters(r) - count_parameters(r, heads=False) == own


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_the_whole_model_has_gradients_everywhere(name, loss):
    model = build(recipe(name, loss))
    batch = from_padded(torch.randint(0, 30, (2, 9)))
    batch.targets = batch.labels = torch.tensor([0, 4, 11])
    model(batch, DropoutKey.make(1, rows=range(2))).losses[loss.name].backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())


def test_what_is_usual_is_written_too():
    assert to_dict(NextToken())["tied"] is True
    assert to_dict(MaskedLM())["plain"] is False
