"""What a run takes over from the model that it begins with."""

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.recipe import build
from clozeworks.starts.transfer import transfer


def test_layers_that_the_recipe_has_no_place_for_are_reported():
    base, short = cw.recipe("bert_mini"), cw.recipe("bert_mini")
    base.encoder.vocab = short.encoder.vocab = 90
    short.encoder.stack.depth, short.train.seed = 2, 1
    source, model = build(base), build(short)
    notes = transfer(source, model)
    note = "left behind, since the recipe has no place for it: stack.blocks.2, stack.blocks.3"
    assert notes == [note]
    theirs = dict(source.named_parameters())
    assert all(torch.equal(value, theirs[name]) for name, value in model.named_parameters())
    assert transfer(source, build(base)) == []
    with pytest.raises(InputError, match=r"stack\.blocks\.2\..*nothing; the recipe has"):
        transfer(model, source)
