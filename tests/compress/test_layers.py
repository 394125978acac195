"""Layers are dropped, and those that stay keep their order and their weights."""

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import DropLayers, PruneFeedForward
from clozeworks.core.errors import InputError
from clozeworks.exchange.read_back import compute, draw_batch
from clozeworks.tasks.layer_selection import SumLayers
from tests.compress import models


def test_which_layers_stay():
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    query = [bundle.model.get_parameter(f"encoder.stack.blocks.{layer}.mixer.query.weight") for layer in range(4)]
    for step, kept in (
        (DropLayers(), [0, 2]),
        (DropLayers(3), [0, 1, 2]),
        (DropLayers(2, "top"), [0, 1]),
        (DropLayers(1, "alternate"), [0]),
    ):
        small = step.apply(bundle, data)
        assert small.recipe.encoder.stack.depth == len(kept)
        for number, layer in enumerate(kept):
            own = small.model.get_parameter(f"encoder.stack.blocks.{number}.mixer.query.weight")
            assert torch.equal(own, query[layer])


def test_a_layer_that_adds_nothing_goes_first():
    bundle = models.make_model("gpt_mini")
    bundle.recipe.encoder.stack.block.place = "pre"
    bundle = models.build_model(bundle.recipe, bundle.tokenizer)
    with torch.no_grad():
        for name in ("mixer.out", "ffn.down"):
            for kind in ("weight", "bias"):
                bundle.model.get_parameter(f"encoder.stack.blocks.1.{name}.{kind}").zero_()
    small = DropLayers(3, "importance").apply(bundle, models.make_data("gpt_mini"))
    batch = draw_batch(small.recipe)
    before, after = compute(bundle.model, batch), compute(small.model, batch)
    for name, value in before.items():
        torch.testing.assert_close(after[name], value)


def test_tuples_of_blocks_follow():
    """Layers of several widths keep their own."""
    data = models.make_data("bert_tiny")
    uneven = PruneFeedForward(0.4).apply(models.make_model("bert_tiny"), data)
    small = DropLayers(2, "top").apply(uneven, data)
    blocks = uneven.recipe.encoder.stack.block
    assert [small.recipe.encoder.stack.block_at(layer) for layer in range(2)] == list(blocks[:2])


def test_groups_that_share_keep_equal_sizes():
    made = models.shrink(cw.recipe("albert_mini"))
    made.encoder.stack.share.attention = made.encoder.stack.share.ffn = 2
    bundle = models.build_model(made, models.make_tokenizer("unigram"))
    small = DropLayers(2).apply(bundle, models.make_data("albert_mini"))
    assert small.recipe.encoder.stack.share.attention == 2
    first, second = (small.model.get_parameter(f"encoder.stack.blocks.{n}.mixer.query.weight") for n in range(2))
    assert not torch.equal(first, second)
    assert DropLayers(2, "top").apply(bundle, models.make_data("albert_mini")).recipe.encoder.stack.share.ffn == 1
    with pytest.raises(InputError, match="as many layers of each must stay"):
        DropLayers(3).apply(bundle, models.make_data("albert_mini"))


def test_refusals():
    bundle, data = models.make_model("bert_tiny"), models.make_data("bert_tiny")
    with pytest.raises(InputError, match="has no more than 4; keep fewer"):
        DropLayers(4).apply(bundle, data)
    task = models.make_task("classify")
    task.recipe.task.reading = SumLayers(2)
    with pytest.raises(InputError, match="reads layers by their numbers"):
        DropLayers(2).apply(task, data)


def test_a_shorter_model_is_a_class_of_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    small = DropLayers(2).apply(models.make_model("bert_tiny"), models.make_data("bert_tiny"))
    cw.save(small, tmp_path / "hf", format="hf")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "hf").eval()
    assert theirs.config.num_hidden_layers == 2
    ids = torch.randint(0, small.recipe.encoder.vocab, (2, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(input_ids=ids).prediction_logits, small.forward(ids).logits, atol=1e-5, rtol=1e-4
        )
