"""Distillation after a cut: nearer to the original than before, whatever the model is, and the original untouched."""

import copy
import dataclasses

import pytest
import torch

from clozeworks.compress import Data, DistilOriginal, parse_steps
from clozeworks.compress.data import losses
from clozeworks.compress.quantize import quantize
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder, load, save
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


def test_it_is_spelt_as_it_is_parsed():
    (step,) = parse_steps("distil=40")
    assert step == DistilOriginal(steps=40)
    assert step.spell() == "distil=40"
