"""Distillation after a cut: nearer to the original than before, whatever the model is, and the original untouched."""

import copy
import dataclasses
from typing import Literal

import pytest
import torch

from clozeworks.compress import Data, DistilOriginal, parse_steps
from clozeworks.compress.data import losses
from clozeworks.compress.quantize import quantize
from clozeworks.compress.training import distil
from clozeworks.compress.training.distil import Teaching, make_student
from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.objectives.losses.attention_scores import AttentionScores
from clozeworks.objectives.losses.relations import Relations
from clozeworks.starts.transfer import digest
from tests.compress import models

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = (*models.FAMILIES, *models.TASKS)


def make(name: str) -> tuple[TextEncoder, Data]:
    original = models.make_task(name) if name in models.TASKS else models.make_model(name)
    return original, dataclasses.replace(models.make_data(name), teacher=original)


def cut(original: TextEncoder, data: Data, steps: str = "ffn=0.5") -> TextEncoder:
    for step in parse_steps(steps):
        original = step.apply(original, data)
    return original


def distance(encoder: TextEncoder, original: TextEncoder) -> float:
    """1 - cosine of vectors of texts that nothing was learned from."""
    texts = models.sentences(40, seed=9)
    a, b = (torch.from_numpy(each.encode(texts)) for each in (encoder, original))
    return float(1 - torch.nn.functional.cosine_similarity(a, b).mean())


@pytest.mark.parametrize("name", ["bert_tiny", "gpt_mini", "classify", "tag"])
def test_vectors_come_nearer_to_the_originals(name: str):
    original, data = make(name)
    small = cut(original, data, "layers=2")
    taught = DistilOriginal(steps=60, learning_rate=3e-3).apply(small, data)
    assert distance(taught, original) < 0.7 * distance(small, original)


def test_a_classifier_decides_as_its_teacher_does():
    original, data = make("classify")
    small = cut(original, data, "layers=2")
    by = [DistilOriginal(steps=40, hidden=0, soft=soft, learning_rate=3e-3).apply(small, data) for soft in (0, 100)]
    texts = models.sentences(60, seed=9)
    chances = [torch.tensor([each["scores"]["warm"] for each in model.predict(texts)]) for model in (original, *by)]
    gaps = [float((each - chances[0]).abs().mean()) for each in chances[1:]]
    assert gaps[1] < 0.3 * gaps[0]


def test_words_are_those_of_the_teacher():
    original, data = make("bert_tiny")
    small = cut(original, data, "layers=2")
    by = [DistilOriginal(steps=40, hidden=0, soft=soft, learning_rate=3e-3).apply(small, data) for soft in (0, 10)]
    ids = torch.arange(5, 45).view(4, 10)
    theirs = original.forward(ids).logits.log_softmax(-1)
    gaps = [float((theirs.exp() * (theirs - model.forward(ids).logits.log_softmax(-1))).sum(-1).mean()) for model in by]
    assert gaps[1] < gaps[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_family_learns_again_and_loads_to_the_bit(name: str, tmp_path):
    original, data = make(name)
    try:
        small = cut(original, data, "ffn=0.5")
    except InputError:
        small = models.copy_bundle(original)
        with torch.no_grad():
            for parameter in filter(torch.Tensor.is_floating_point, small.model.parameters()):
                parameter.mul_(0.9)
    before, theirs = digest(small.model), digest(original.model)
    taught = DistilOriginal(steps=3).apply(small, data)
    assert (digest(small.model), digest(original.model)) == (before, theirs)
    assert digest(taught.model) != before
    assert taught.recipe == small.recipe
    loss, _ = next(losses(taught.model, data.batches(taught)))
    assert loss.isfinite()
    save(taught, tmp_path / "taught")
    assert digest(load(tmp_path / "taught").model) == digest(taught.model)


def test_fewer_layers_that_share_their_weights_are_another_model():
    original, data = make("albert_mini")
    small = cut(original, data, "layers=2")
    assert digest(small.model) == digest(original.model)
    assert digest(DistilOriginal(steps=2).apply(small, data).model) != digest(small.model)


def test_twice_the_same_bits():
    original, data = make("classify")
    small = cut(original, data)
    first, second = (DistilOriginal(steps=5).apply(small, data) for _ in range(2))
    assert digest(first.model) == digest(second.model)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda original, data: original, "the first step"),
        (lambda original, data: cut(original, data, "vocab"), "put it before vocab"),
        (lambda original, data: quantize(original), "before int8"),
    ],
    ids=["nothing", "vocab", "int8"],
)
def test_what_it_cannot_follow_is_refused(prepare, reason: str):
    original, data = make("bert_tiny")
    with pytest.raises(InputError, match=reason):
        DistilOriginal().apply(prepare(original, data), data)


def test_what_was_frozen_stays():
    original, data = make("classify")
    small = cut(original, data)
    small.model.encoder.embed.requires_grad_(False)
    taught = DistilOriginal(steps=3).apply(small, data)
    same = [torch.equal(a, b) for a, b in zip(small.model.parameters(), taught.model.parameters(), strict=True)]
    learns = [each.requires_grad for each in small.model.parameters()]
    assert learns == [not each for each in same]


def test_without_a_teacher_it_says_where_one_is_given():
    original, data = make("bert_tiny")
    with pytest.raises(InputError, match=r"Data\(teacher"):
        DistilOriginal().apply(cut(original, data), dataclasses.replace(data, teacher=None))


def test_nothing_to_learn_from_is_refused():
    original, data = make("bert_tiny")
    bare = copy.deepcopy(cut(original, data))
    bare.recipe.objective.losses = ()
    bare = TextEncoder(bare.model, bare.tokenizer, bare.recipe)
    with pytest.raises(InputError, match="nothing is compared"):
        DistilOriginal(soft=0, hidden=0).apply(bare, data)


def inner_distance(encoder: TextEncoder, original: TextEncoder, name: str) -> float:
    """What a loss that compares two models inside makes of them, a token."""
    loss = {"relations": Relations(), "layers": AttentionScores()}[name]
    data = dataclasses.replace(models.make_data("bert_tiny"), seed=5)
    student = make_student(encoder, (loss,), own=False)
    teaching = Teaching(original.model, student.specs, encoder.recipe.top.depth)
    batch = teaching(next(iter(data.batches(encoder))))
    with torch.no_grad():
        return float(student(batch).losses[loss.name]) / batch.read


@pytest.mark.parametrize("match", ["relations", "layers"])
def test_what_is_compared_inside_comes_nearer(match: Literal["relations", "layers"]):
    original, data = make("bert_tiny")
    small = cut(original, data, "layers=2,ffn=0.5")
    by = {
        each: DistilOriginal(steps=60, match=each, hidden=10, soft=0, learning_rate=3e-3).apply(small, data)
        for each in ("last", match)
    }
    gaps = {name: inner_distance(each, original, match) for name, each in by.items()}
    assert gaps[match] < 0.7 * min(gaps["last"], inner_distance(small, original, match))
    assert by[match].recipe == small.recipe
    assert {*dict(by[match].model.named_parameters())} == {*dict(small.model.named_parameters())}


def test_the_first_stage_of_layers_is_without_the_task(monkeypatch: pytest.MonkeyPatch):
    original, data = make("classify")
    small, stages = cut(original, data, "layers=1"), []

    def remember(bundle, student, batches, train, teacher):
        stages.append(([loss.name for loss in student.specs], train.steps))
        return bundle

    monkeypatch.setattr(distil, "fit_student", remember)
    DistilOriginal(steps=30, match="layers").apply(small, data)
    assert stages == [(["hidden_states", "attention_scores"], 20), (["classify", "soft_labels"], 10)]
    stages.clear()
    DistilOriginal(steps=1, match="layers").apply(small, data)
    assert [steps for _, steps in stages] == [1]


@pytest.mark.parametrize(
    ("name", "steps", "match", "reason"),
    [
        ("bert_tiny", "heads=0.5", "relations", "heads, and bert_tiny has 4"),
        ("bert_tiny", "layers=3", "layers", "3 layers, and bert_tiny has 4"),
        ("awd_lstm_mini", "", "relations", "layers without heads"),
    ],
)
def test_models_that_cannot_be_compared_inside_are_refused(name, steps, match, reason):
    original, data = make(name)
    small = cut(original, data, steps) if steps else models.copy_bundle(original)
    if not steps:
        with torch.no_grad():
            next(small.model.parameters()).mul_(0.9)
    with pytest.raises(InputError, match=reason):
        DistilOriginal(steps=2, match=match).apply(small, data)


def test_it_is_spelt_as_it_is_parsed():
    for text, step in (
        ("distil=40", DistilOriginal(steps=40)),
        ("distil=40:relations", DistilOriginal(steps=40, match="relations")),
        ("distil=300:layers", DistilOriginal(match="layers")),
    ):
        assert parse_steps(text) == (step,)
        assert step.spell() == text
    with pytest.raises(InputError, match="are compared with this weight"):
        spec.check(DistilOriginal(hidden=0, match="layers"), "distil")
