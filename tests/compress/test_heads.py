"""Heads are cut for real: what is left computes what the whole model does without the others."""

import copy

import pytest
import torch
from torch import nn

import clozeworks as cw
from clozeworks.compress import Data, PruneHeads
from clozeworks.compress.heads import written
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.read_back import compute, draw_batch
from clozeworks.nn.mixer import MixerLayer
from clozeworks.nn.window import Window
from tests.compress import models
from tests.toys import packed

FAMILIES = (
    "bert_tiny", "roberta_mini", "albert_mini", "cloze_tiny", "gpt_mini", "transformer_xl_mini", "adaptive_span_mini",
    "xlnet_mini", "longformer_mini", "reformer_mini", "transformer_mini", "lite_transformer_lm_mini", "tag",
)  # fmt: skip


def make(name: str) -> Bundle:
    return models.make_task(name) if name in models.TASKS else models.make_model(name)


def cuttable(bundle: Bundle) -> dict[str, MixerLayer]:
    return {name: each for name, each in bundle.model.named_modules() if isinstance(each, MixerLayer) and each.by_head}


def kept_heads(whole: MixerLayer, cut: MixerLayer) -> list[int]:
    """Which heads of the whole one the other has, by their values."""
    before, after = (each.get_parameter("value.weight").unflatten(0, (each.heads, -1)) for each in (whole, cut))
    return [head for head in range(len(before)) if any(torch.equal(before[head], own) for own in after)]


@pytest.mark.parametrize("by", ["gradient", "magnitude"])
@pytest.mark.parametrize("name", FAMILIES)
def test_cut_is_masked(name: str, by):
    bundle = make(name)
    small = PruneHeads(0.5, by=by).apply(bundle, models.make_data(name))
    masked, removed = copy.deepcopy(bundle.model), 0
    for path, cut in cuttable(small).items():
        whole = masked.get_submodule(path)
        assert isinstance(whole, MixerLayer)
        kept = kept_heads(whole, cut)
        assert len(kept) == cut.heads >= 1
        removed += whole.heads - len(kept)

        def without_the_others(_: nn.Module, arguments: tuple, kept=tuple(kept), heads=whole.heads) -> tuple:
            gate = torch.zeros(heads, 1)
            gate[list(kept)] = 1
            return ((arguments[0].unflatten(-1, (heads, -1)) * gate).flatten(-2),)

        whole.get_submodule("out").register_forward_pre_hook(without_the_others)
    assert removed == sum(each.heads for each in cuttable(bundle).values()) // 2
    batch = draw_batch(small.recipe)
    whole, expected, given = (compute(each, batch) for each in (bundle.model, masked, small.model))
    assert expected.keys() == given.keys()
    for key, value in expected.items():
        torch.testing.assert_close(given[key], value, atol=1e-6 * max(1.0, float(value.abs().max())), rtol=1e-6)
    assert any(not torch.allclose(whole[key], value, atol=1e-3) for key, value in expected.items())


def test_parameters_to_the_unit():
    """A head of width d in a model of width D has 4 D d weights, and 3 d biases."""
    bundle = models.make_model("bert_tiny")
    for share, gone in ((0.25, 4), (0.5, 8), (0.99, 12)):
        small = PruneHeads(share).apply(bundle, models.make_data("bert_tiny"))
        saved = cw.count_parameters(bundle.recipe) - cw.count_parameters(small.recipe)
        assert saved == gone * (4 * 32 * 8 + 3 * 8)


def test_multiply_adds_to_the_unit():
    """A head costs 4 D d products a token, and 2 L d with the keys and values of L tokens."""
    bundle = models.make_model("bert_tiny")
    small = PruneHeads(0.25).apply(bundle, models.make_data("bert_tiny"))
    saved = cw.multiply_adds(bundle.recipe, 16) - cw.multiply_adds(small.recipe, 16)
    assert saved == 4 * 16 * (4 * 32 * 8 + 2 * 16 * 8)


def test_each_layer_keeps_one_and_layers_lose_as_many_where_asked():
    bundle = models.make_model("bert_tiny")
    heads = [each.heads for each in cuttable(PruneHeads(0.99).apply(bundle, models.make_data("bert_tiny"))).values()]
    assert heads == [1, 1, 1, 1]
    small = PruneHeads(0.5, scope="layer").apply(bundle, models.make_data("bert_tiny"))
    assert [each.heads for each in cuttable(small).values()] == [2, 2, 2, 2]
    assert not isinstance(small.recipe.encoder.stack.block, tuple), "one block for layers that are alike"


def test_importance_is_the_gradient_of_a_gate():
    """A head that writes nothing goes first; the sign of what a gate says is that of a difference."""
    bundle = models.make_model("bert_tiny")
    mixer = cuttable(bundle)["encoder.stack.blocks.2.mixer"]
    with torch.no_grad():
        mixer.get_parameter("out.weight")[:, 8:16] = 0
    for by in ("gradient", "magnitude"):
        small = PruneHeads(1 / 16, by=by).apply(bundle, models.make_data("bert_tiny"))
        assert kept_heads(mixer, cuttable(small)["encoder.stack.blocks.2.mixer"]) == [0, 2, 3]


def test_magnitude_is_that_of_what_a_head_can_write():
    mixer = cuttable(models.make_model("bert_tiny"))["encoder.stack.blocks.0.mixer"]
    value, out = (mixer.get_parameter(f"{name}.weight").detach() for name in ("value", "out"))
    expected = [float((out[:, at : at + 8] @ value[at : at + 8]).norm()) for at in range(0, 32, 8)]
    torch.testing.assert_close(written(mixer), torch.tensor(expected))


def test_layers_that_share_lose_the_same_heads():
    small = PruneHeads(0.5).apply(models.make_model("albert_mini"), models.make_data("albert_mini"))
    assert {each.heads for each in cuttable(small).values()} == {2}
    shared = PruneHeads(0.5).apply(models.make_model("transformer_xl_mini"), models.make_data("transformer_xl_mini"))
    assert shared.recipe.encoder.stack.share.bias == 1


def test_a_share_of_no_head_is_refused():
    bundle = models.make_model("bert_tiny")
    with pytest.raises(InputError, match="of 16 heads that is none"):
        PruneHeads(0.01).apply(bundle, models.make_data("bert_tiny"))
    one = PruneHeads(0.99).apply(bundle, models.make_data("bert_tiny"))
    with pytest.raises(InputError, match="the last of its layer"):
        PruneHeads(0.5).apply(one, models.make_data("bert_tiny"))


def test_without_text_there_is_no_gradient():
    with pytest.raises(InputError, match="nothing to read"):
        PruneHeads(0.5).apply(models.make_model("bert_tiny"), Data())
    PruneHeads(0.5, by="magnitude").apply(models.make_model("bert_tiny"), Data())


def test_a_model_without_a_loss_counts_by_its_vectors():
    """A bare encoder, whose importance is how much its vectors change."""
    bundle = models.make_model("bert_tiny")
    bundle.recipe.objective.losses = ()
    bare = models.build_model(bundle.recipe, bundle.tokenizer)
    mixer = cuttable(bare)["encoder.stack.blocks.1.mixer"]
    with torch.no_grad():
        mixer.get_parameter("out.weight")[:, :8] = 0
    small = PruneHeads(1 / 16).apply(bare, models.make_data("bert_tiny"))
    assert kept_heads(mixer, cuttable(small)["encoder.stack.blocks.1.mixer"]) == [1, 2, 3]


def test_what_a_class_of_hugging_face_cannot_say_is_refused(tmp_path):
    bundle = models.make_model("bert_tiny")
    for step in (PruneHeads(0.5, scope="layer"), PruneHeads(0.3)):
        small = step.apply(bundle, models.make_data("bert_tiny"))
        with pytest.raises(InputError, match="block"):
            cw.save(small, tmp_path / "hf", format="hf")
    assert not (tmp_path / "hf").exists()


LENGTHS = (([[300], [120, 150, 30]], 300), ([[17], [9]], 20), ([[600, 40]], 700))


@pytest.mark.parametrize("name", ["bert_tiny", "cloze_tiny", "gpt_mini", "xlnet_mini", "longformer_mini"])
def test_fast_paths_of_layers_with_several_numbers_of_heads(name: str):
    """What layers of a pass have in common does not depend on their heads."""
    small = PruneHeads(0.4).apply(models.make_model(name), models.make_data(name))
    assert len({each.heads for each in cuttable(small).values()}) > 1
    stack, kind = small.model.encoder.stack, small.recipe.reading
    for lengths, width in LENGTHS:
        x = torch.randn(len(lengths), width, 32, generator=torch.Generator().manual_seed(1))
        defined, fast, trained = (packed(lengths, width, kind) for _ in range(3))
        real = fast.query.document >= 0
        with torch.no_grad():
            expected = stack(x, defined.replace(backend="dense")).last[real]
            torch.testing.assert_close(stack(x, fast).last[real], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stack(x.requires_grad_(), trained).last[real], expected, atol=1e-5, rtol=1e-5)


def test_dropout_of_layers_with_several_numbers_of_heads():
    made = models.shrink(cw.recipe("bert_tiny"))
    assert not isinstance(made.encoder.stack.block, tuple)
    made.encoder.stack.block.dropout = made.encoder.stack.block.mixer.dropout = 0.2
    bundle = models.build_model(made, models.make_tokenizer("wordpiece"))
    small = PruneHeads(0.4).apply(bundle, models.make_data("bert_tiny"))
    context = packed([[300], [120, 150, 30]], 300, key=DropoutKey.make(3, rows=range(2)))
    small.model.encoder.stack(torch.randn(2, 300, 32, requires_grad=True), context).last.sum().backward()
    gradients = [each.grad for each in small.model.encoder.stack.parameters()]
    assert all(each is not None and each.isfinite().all() for each in gradients)


def test_steps_of_a_window_go_with_their_heads():
    """Heads of a dilated window keep their own step."""
    made = models.shrink(cw.recipe("longformer_mini"))
    block = made.encoder.stack.block
    for each in block if isinstance(block, tuple) else (block,):
        each.mixer.window = Window(4, dilation=(1, 2, 3, 4))
    bundle = models.build_model(made, models.make_tokenizer("bytes"))
    small = PruneHeads(0.5).apply(bundle, models.make_data("longformer_mini"))
    before, after = cuttable(bundle), cuttable(small)
    for path, cut in after.items():
        kept = kept_heads(before[path], cut)
        assert cut.window.dilation == tuple(head + 1 for head in kept)
