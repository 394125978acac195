"""Single weights go: as many as asked, the ones that count least, and the file is smaller by them."""

import dataclasses

import pytest
import torch

from clozeworks.compress import DistilOriginal, PruneWeights, Quantize, parse_steps
from clozeworks.compress.quantize import quantize
from clozeworks.compress.training import prune_weights
from clozeworks.compress.training.prune_weights import EVERY, Masks, prunable
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.starts.transfer import digest
from tests.compress import models

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = (*models.FAMILIES, *models.TASKS)


def make(name: str):
    original = models.make_task(name) if name in models.TASKS else models.make_model(name)
    return original, dataclasses.replace(models.make_data(name), teacher=original)


def zeros(encoder: TextEncoder) -> float:
    parts = [weight.detach() for weight, _ in prunable(encoder.model)]
    return sum(float((each == 0).sum()) for each in parts) / sum(each.numel() for each in parts)


@pytest.mark.parametrize("how", ["magnitude", "gradual", "movement", "magnitude:layer", "movement:layer"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_so_many_are_zero(how: str, share: float):
    original, data = make("bert_tiny")
    (step,) = parse_steps(f"weights={share}:{how}")
    assert isinstance(step, PruneWeights)
    small = dataclasses.replace(step, steps=25).apply(original, data)
    assert zeros(small) == pytest.approx(share, abs=2e-3)
    if "layer" in how:
        for weight, _ in prunable(small.model):
            assert float((weight == 0).float().mean()) == pytest.approx(share, abs=0.01)


def test_once_it_is_the_smallest_of_all_matrices_brought_to_one_size():
    original, data = make("bert_tiny")
    small = PruneWeights(0.4).apply(original, data)
    gone, stay = list[torch.Tensor](), list[torch.Tensor]()
    for (before, _), (after, _) in zip(prunable(original.model), prunable(small.model), strict=True):
        size = before.abs() / before.square().mean().sqrt()
        gone.append(size[after == 0])
        stay.append(size[after != 0])
        assert torch.equal(before[after != 0], after[after != 0])
    assert torch.cat(gone).max() <= torch.cat(stay).min()


@pytest.mark.parametrize("by", ["gradual", "movement"])
def test_while_weights_go_the_others_learn_what_they_did(by: str):
    original, data = make("bert_tiny")
    texts = models.sentences(60, seed=9)

    def distance(step: PruneWeights) -> float:
        a, b = (torch.from_numpy(each.encode(texts)) for each in (original, step.apply(original, data)))
        return float(1 - torch.nn.functional.cosine_similarity(a, b).mean())

    assert distance(PruneWeights(0.8, by=by, steps=80)) < 0.7 * distance(PruneWeights(0.8))


def test_movement_keeps_what_grows_and_gives_back_what_was_wanted_again():
    """Two weights, each pulled to a value: the one that is pulled away from 0 stays, however small it is now."""
    weight = torch.nn.Parameter(torch.tensor([[0.1, 1.0]]))
    step = PruneWeights(0.5, by="movement", steps=2 * EVERY)
    masks = Masks([weight], step)

    def learn(wanted: list[float], first: int) -> None:
        for number in range(first, first + EVERY):
            weight.grad = None
            (weight - torch.tensor([wanted])).square().sum().backward()
            with torch.no_grad():
                weight.sub_(0.01 * weight.grad)
            masks.after(number)

    learn([2.0, 0.5], 1)
    assert masks.masks[0].tolist() == [[True, False]]
    assert float(masks.values[0][0, 1]) == pytest.approx(0.904, abs=0.02)  # as it was when it went, unseen
    assert weight[0, 1] == 0
    learn([-9.0, 99.0], EVERY + 1)
    assert masks.masks[0].tolist() == [[False, True]]
    assert float(weight.detach()[0, 1]) == pytest.approx(0.904, abs=0.02)


def test_the_share_follows_a_cube_that_begins_at_zero():
    step = PruneWeights(0.8, steps=100)
    assert step.reached(0) == 0
    assert step.reached(50) == pytest.approx(0.8 * 0.875)
    assert step.reached(100) == 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_loses_weights_and_loads_to_the_bit(name: str, tmp_path):
    original, data = make(name)
    if name == "elmo_mini":
        with pytest.raises(InputError, match="no linear part and no table"):
            PruneWeights(0.6).apply(original, data)
        return
    theirs = digest(original.model)
    small = PruneWeights(0.6, by="gradual", steps=EVERY).apply(original, data)
    assert digest(original.model) == theirs
    assert small.recipe == original.recipe
    assert zeros(small) == pytest.approx(0.6, abs=0.01)
    save(small, tmp_path / "small")
    save(original, tmp_path / "original")
    assert digest(load(tmp_path / "small").model) == digest(small.model)
    sizes = [(tmp_path / each / "model.safetensors").stat().st_size for each in ("small", "original")]
    count = sum(weight.numel() for weight, _ in prunable(small.model))
    assert sizes[1] - sizes[0] > 0.8 * count * (4 * 0.6 - 1 / 8)


def test_what_learns_afterwards_stays_sparse_and_int8_too(tmp_path):
    original, data = make("bert_tiny")
    small = PruneWeights(0.8).apply(original, data)
    taught = DistilOriginal(steps=5).apply(small, data)
    assert zeros(taught) >= zeros(small)
    assert digest(taught.model) != digest(small.model)
    whole, rounded = quantize(original), Quantize(most=0).apply(taught, data)
    for name, model in (("whole", whole), ("rounded", rounded)):
        save(model, tmp_path / name)
    sizes = [(tmp_path / each / "model.safetensors").stat().st_size for each in ("rounded", "whole")]
    assert sizes[0] < 0.9 * sizes[1]
    assert digest(load(tmp_path / "rounded").model) == digest(rounded.model)


def test_twice_the_same_bits():
    original, data = make("classify")
    first, second = (PruneWeights(0.5, by="movement", steps=12).apply(original, data) for _ in range(2))
    assert digest(first.model) == digest(second.model)


def test_frozen_weights_can_go_and_none_learns():
    original, data = make("classify")
    original.model.encoder.embed.requires_grad_(False)
    small = PruneWeights(0.5, by="gradual", steps=EVERY).apply(original, data)
    before, after = (each.model.encoder.embed.words.table.weight for each in (original, small))
    assert (after == 0).any()
    assert torch.equal(before[after != 0], after[after != 0])
    assert not after.requires_grad


def test_refusals():
    original, data = make("bert_tiny")
    with pytest.raises(InputError, match="before int8"):
        PruneWeights().apply(quantize(original), data)
    assert prune_weights.select([torch.arange(4.0)], 0.0, "global")[0].all()
