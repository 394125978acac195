"""A smaller model is trained on: pretraining continues, a task is learned, and what was cut stays cut."""

import pytest

import clozeworks as cw
from clozeworks.compress import PruneHeads, parse_steps
from clozeworks.core import spec
from clozeworks.data.shards.prepare import prepare
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from tests.compress import models
from tests.labelled import rows

STEPS = "heads=0.4,ffn=0.4,layers=3,vocab"


@pytest.mark.parametrize("steps", [STEPS, "table=8", "share=2"])
def test_pretraining_continues(steps: str, tmp_path):
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    for step in parse_steps(steps):
        bundle = step.apply(bundle, data)
    prepare(iter(models.documents(60)), tmp_path / "data", tokenizer=bundle.tokenizer, heldout=0)
    recipe = bundle.recipe
    recipe.train.steps, recipe.train.batch_tokens, recipe.objective.segments.length = 3, 256, 32
    cw.pretrain(recipe, tmp_path / "data", tmp_path / "run", source=bundle.model)
    trained = cw.load(tmp_path / "run")
    assert trained.recipe.encoder == recipe.encoder
    assert cw.count_parameters(trained.recipe) == cw.count_parameters(recipe)


def test_a_longer_text_is_read_by_heads_that_were_cut():
    bundle = models.make_model("roberta_mini")
    small = PruneHeads(0.4).apply(bundle, models.make_data("roberta_mini"))
    wide = cw.convert(small, length=1024, window=16)
    again = PruneHeads(0.4).apply(wide, models.make_data("roberta_mini"))
    assert again.encode(["the old fox sees rain " * 20]).shape == (1, 32)


def test_a_task_is_learned(tmp_path):
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    for step in parse_steps(STEPS):
        bundle = step.apply(bundle, data)
    cw.save(bundle, tmp_path / "small")
    options = {"epochs": 1, "batch_size": 8, "max_length": 16}
    cw.finetune("classify", model=tmp_path / "small", train=rows(32), out=tmp_path / "task", **options)
    tuned = cw.load(tmp_path / "task")
    for kind in (Attention, FeedForward):
        shapes = [
            [part for _, part in spec.walk(each.recipe.encoder.stack) if isinstance(part, kind)]
            for each in (bundle, tuned)
        ]
        assert [part.head_width if kind is Attention else part.inner for part in shapes[0]] == [
            part.head_width if kind is Attention else part.inner for part in shapes[1]
        ]
    assert len(tuned.predict(["a red fox", "a blue hen"])) == 2
