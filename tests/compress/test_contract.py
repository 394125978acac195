"""Every step with every family: it gives an ordinary model that loads again to the bit, or is refused with a reason."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import Step, list_steps, parse_steps
from clozeworks.compress.data import losses
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.text_encoder import TextEncoder
from tests.compress import models
from tests.compress.loaded import digest

STEPS = (
    "heads=0.5", "heads=0.5:magnitude:layer", "ffn=0.4", "ffn=0.4:magnitude:layer",
    "layers=2", "layers=2:top", "layers=2:importance", "share=2", "table=8", "vocab", "exit=0.3",
)  # fmt: skip
ADDS = ("exit",)  # steps that leave every part where it is, and add some
NAMES = (*models.FAMILIES, *models.TASKS)
SHARED, TWICE, ONE_SHAPE = "share 1 sets of weights already", "both directions alike", "share only blocks of one shape"
# Of a family and a word of a step: why it cannot be.
REFUSED = {
    ("albert_mini", "share"): SHARED,
    ("albert_mini", "table"): "a product already",
    ("spanbert_mini", "table"): "SpanBoundary: its head is tied",
    ("reformer_mini", "layers=2:importance"): "no gradient can be read",
    ("reformer_mini", "share"): ONE_SHAPE,
    ("elmo_mini", "heads"): TWICE,
    ("elmo_mini", "ffn"): TWICE,
    ("elmo_mini", "layers=2:importance"): TWICE,
    ("elmo_mini", "table"): "one table of words is needed",
    ("awd_lstm_mini", "heads"): "it has no heads",
    ("awd_lstm_mini", "ffn"): "no layer has a feed-forward part",
    ("awd_lstm_mini", "layers=2"): "another width",
    ("awd_lstm_mini", "layers=2:importance"): "no gradient can be read",
    ("awd_lstm_mini", "share"): ONE_SHAPE,
    ("lite_transformer_mini", "share"): ONE_SHAPE,
    ("lite_transformer_lm_mini", "share"): ONE_SHAPE,
}


def make(name: str) -> TextEncoder:
    return models.make_task(name) if name in models.TASKS else models.make_model(name)


def reason(family: str, step: str) -> str | None:
    if step.startswith("exit") and family != "classify":
        return "label of a whole text"
    return REFUSED.get((family, step), REFUSED.get((family, step.partition("=")[0])))


def train_a_step(bundle: TextEncoder, name: str) -> None:
    bundle = models.copy_bundle(bundle)
    loss, _ = next(losses(bundle.model, models.make_data(name).batches(bundle)))
    loss.backward()
    gradients = [each.grad for each in bundle.model.parameters() if each.grad is not None]
    assert gradients
    assert all(each.isfinite().all() for each in gradients)
    with torch.no_grad():
        for each in bundle.model.parameters():
            if each.grad is not None:
                each -= 0.01 * each.grad
    again, _ = next(losses(bundle.model, models.make_data(name).batches(bundle)))
    assert again < loss


def again(step: Step, small: TextEncoder, name: str) -> None:
    """Once more: smaller still, or a reason."""
    try:
        twice = step.apply(small, models.make_data(name))
    except InputError:
        return
    assert cw.count_parameters(twice.recipe) <= cw.count_parameters(small.recipe)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"": tmp_path_factory.mktemp("small")}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_gives_an_ordinary_model_or_a_reason(name: str, saved: dict[str, Path]):
    bundle, data = make(name), models.make_data(name)
    before, recipe = models.copy_weights(bundle), copy.deepcopy(bundle.recipe)
    for text in STEPS:
        (step,) = parse_steps(text)
        if (why := reason(name, text)) is not None:
            with pytest.raises(InputError, match=why):
                step.apply(bundle, data)
            continue
        small = step.apply(bundle, data)
        assert bundle.recipe == recipe, text
        assert all(torch.equal(before[key], value) for key, value in bundle.model.named_parameters()), text
        assert all(value.requires_grad == small.model.get_parameter(key).requires_grad
                   for key, value in bundle.model.named_parameters()
                   if key in dict(small.model.named_parameters())), text  # fmt: skip
        held = sum(each.numel() for each in small.model.parameters() if each.is_floating_point())
        assert held == cw.count_parameters(small.recipe), text
        if step.name not in ADDS:
            assert held < cw.count_parameters(recipe) or (name, step.name) == ("albert_mini", "layers"), text
        assert isinstance(small, TextEncoder)
        train_a_step(small, name)
        again(step, small, name)
        out = saved[""] / f"{name}-{text.replace(':', '-')}"
        theirs = saved[""] / f"{out.name}-hf"
        cw.save(small, out)
        saved[out.name] = Path(digest(small))
        try:
            cw.save(small, theirs, format="hf")
        except RecipeError:
            assert not theirs.exists()


def test_what_was_saved_loads_in_a_fresh_process_to_the_bit(saved: dict[str, Path]):
    """Behind the others, whose directories one process reads: it is slow to start."""
    expected = {name: str(value) for name, value in saved.items() if name}
    if not expected:
        pytest.skip("no model was made before")
    command = [sys.executable, "-m", "tests.compress.loaded", *(str(saved[""] / name) for name in expected)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1]) == expected


def test_every_step_is_in_the_battery():
    steps = {step.partition("=")[0] for step in STEPS}
    assert steps <= list_steps().keys()
    assert {name for name, kind in list_steps().items() if kind.structural} | {*ADDS} == steps
