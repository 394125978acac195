"""Layers that stand for several: in the others' place they compute what these do, and learn to."""

import copy
import dataclasses

import pytest
import torch

from clozeworks.compress import Data, ReplaceModules, parse_steps
from clozeworks.compress.data import losses
from clozeworks.compress.quantize import quantize
from clozeworks.compress.training import replace_modules
from clozeworks.compress.training.replace_modules import Replaced, choose_replaced
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.starts.transfer import digest
from tests.compress import models

pytestmark = pytest.mark.usefixtures("one_thread")
TASKS = ("classify", "tag")


def make(name: str) -> tuple[TextEncoder, Data]:
    original = models.make_task(name) if name in models.TASKS else models.make_model(name)
    return original, dataclasses.replace(models.make_data(name), teacher=original)


def cut(original: TextEncoder, data: Data, steps: str = "layers=2") -> TextEncoder:
    for step in parse_steps(steps):
        original = step.apply(original, data)
    return original


@pytest.mark.parametrize("name", ["bert_tiny", "albert_mini", "gpt_mini", *TASKS])
def test_the_cut_model_learns_and_loads_to_the_bit(name: str, tmp_path):
    original, data = make(name)
    small = cut(original, data, f"layers={original.recipe.encoder.stack.depth // 2}")
    before, theirs = digest(small.model), digest(original.model)
    taught = ReplaceModules(steps=6).apply(small, data)
    assert (digest(small.model), digest(original.model)) == (before, theirs)
    assert digest(taught.model) != before
    assert taught.recipe == small.recipe
    assert all(parameter.grad is None for parameter in original.model.parameters())
    save(taught, tmp_path / "taught")
    assert digest(load(tmp_path / "taught").model) == digest(taught.model)
    assert digest(ReplaceModules(steps=6).apply(small, data).model) == digest(taught.model), "twice the same bits"


def test_the_task_is_learned():
    original, data = make("classify")
    small = cut(original, data)
    taught = ReplaceModules(steps=60, learning_rate=3e-3).apply(small, data)
    before, after = (sum(loss.item() for loss, _ in losses(each.model, data.batches(each))) for each in (small, taught))
    assert after < 0.7 * before


def test_where_nothing_is_replaced_the_model_is_the_original():
    """Of a model whose groups all are those of the original, layer by layer."""
    original, data = make("bert_tiny")
    small, size = cut(original, data), original.recipe.encoder.stack.depth // 2
    blocks = copy.deepcopy(original.model.encoder.stack.blocks)
    for at, block in enumerate(small.model.encoder.stack.blocks):
        group = Replaced(block, blocks[at * size : (at + 1) * size])
        group.replaced = False
        small.model.encoder.stack.blocks[at] = group
    ids = torch.arange(5, 45).view(4, 10)
    with torch.no_grad():
        assert torch.equal(small.forward(ids).last_hidden_state, original.forward(ids).last_hidden_state)
    assert len(small.model.state_dict()) == len(cut(original, data).model.state_dict())


def test_first_only_layers_learn_then_everything(monkeypatch: pytest.MonkeyPatch):
    original, data = make("classify")
    small = cut(original, data)
    seen: list[set[str]] = []
    train = replace_modules.train_student

    def watch(student, *rest, **named):
        seen.append({name for name, each in student.named_parameters() if each.requires_grad})
        train(student, *rest, **named)

    monkeypatch.setattr(replace_modules, "train_student", watch)
    taught = ReplaceModules(steps=9).apply(small, data)
    assert len(seen) == 2
    assert seen[0]
    assert all(".own." in name for name in seen[0])
    assert seen[1] == {name for name, _ in taught.model.named_parameters()}


def test_chances_are_kept_and_one_is_always_replaced():
    groups = [Replaced(torch.nn.Identity(), ()) for _ in range(4)]
    counts = [0, 0]
    for key in range(2000):
        for at, chance in enumerate((0.0, 0.7)):
            choose_replaced(groups, chance, key)
            counts[at] += sum(group.replaced for group in groups)
            assert any(group.replaced for group in groups)
    assert counts[0] == 2000
    assert counts[1] / 8000 == pytest.approx(0.7, abs=0.02)
    choose_replaced(groups, 1.0, 0)
    assert all(group.replaced for group in groups)


@pytest.mark.parametrize(
    ("name", "prepare", "reason"),
    [
        ("bert_tiny", lambda original, data: original, "the first step"),
        ("bert_tiny", lambda original, data: cut(original, data, "ffn=0.5"), "two at least"),
        ("bert_tiny", lambda original, data: cut(original, data, "layers=3"), "keep 1 or 2"),
        ("bert_tiny", lambda original, data: cut(original, data, "layers=2,vocab"), "put it before vocab"),
        ("bert_tiny", lambda original, data: quantize(original), "before int8"),
        ("xlnet_mini", lambda original, data: cut(original, data), "use distil"),
        ("elmo_mini", lambda original, data: cut(original, data, "layers=1"), "use distil"),
    ],
)
def test_what_it_cannot_follow_is_refused(name: str, prepare, reason: str):
    original, data = make(name)
    with pytest.raises(InputError, match=reason):
        ReplaceModules().apply(prepare(original, data), data)
