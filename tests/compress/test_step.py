"""What `--apply` says, and what a step may be called with."""

import pytest
import torch
from torch import nn

from clozeworks.compress import (
    DropLayers,
    FactorizeEmbedding,
    PruneFeedForward,
    PruneHeads,
    ShareLayers,
    TrimVocabulary,
    list_steps,
    parse_steps,
)
from clozeworks.core.errors import InputError
from tests.compress import models


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("heads=0.3", (PruneHeads(0.3),)),
        ("heads", (PruneHeads(),)),
        ("heads=0.3:layer:magnitude", (PruneHeads(0.3, "magnitude", "layer"),)),
        ("heads=magnitude", (PruneHeads(by="magnitude"),)),
        ("layers=3,layers=alternate", (DropLayers(3), DropLayers(which="alternate"))),
        ("layers=2:importance", (DropLayers(2, "importance"),)),
        ("ffn=0.5, vocab, table=64", (PruneFeedForward(0.5), TrimVocabulary(), FactorizeEmbedding(64))),
        ("vocab=3,share=2", (TrimVocabulary(3), ShareLayers(2))),
    ],
)
def test_what_it_says(text, steps):
    assert parse_steps(text) == steps
    assert parse_steps(",".join(step.spell() for step in steps)) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("head=0.3", "--apply: head; a step is needed; did you mean heads"),
        ("", "--apply: nothing; a step is needed"),
        ("heads=2", r"--apply heads.share = 2.* in \(0, 1\) is needed"),
        ("heads=gradeint", "did you mean gradient"),
        ("heads=", "--apply heads: nothing"),
        ("table=0", "--apply table.rank = 0: 1 or more is needed"),
        ("table=1.5", "--apply table: 1.5; a value of type int is needed"),
    ],
)
def test_what_it_cannot_say(text, message):
    with pytest.raises(InputError, match=message):
        parse_steps(text)


def test_what_was_measured_of_the_old_model_is_not_said_of_the_new_one():
    bundle = models.make_model("bert_tiny")
    bundle.facts = {"heldout": {"loss": 1.0}, "data": {"documents": 3}}
    small = DropLayers(2).apply(bundle, models.make_data("bert_tiny"))
    assert small.facts == {"data": {"documents": 3}}
    assert bundle.facts["heldout"]


@pytest.mark.parametrize("name", [name for name, kind in list_steps().items() if kind.structural])
def test_weights_in_int8_are_refused(name: str):
    bundle = models.make_model("bert_tiny")
    table = bundle.model.encoder.embed.words.table
    table.weight = nn.Parameter(table.weight.detach().to(torch.int8), requires_grad=False)
    with pytest.raises(InputError, match="take this step before int8"):
        list_steps()[name]().apply(bundle, models.make_data("bert_tiny"))


def test_steps_in_a_row():
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    for step in parse_steps("heads=0.5,ffn=0.4,layers=3,vocab,table=8,heads=0.2:magnitude"):
        bundle = step.apply(bundle, data)
    assert bundle.encode(["the old fox sees rain"]).shape == (1, 32)
