"""Layers that begin to learn one after another."""

import os
import signal
from pathlib import Path

import pytest
from torch import Tensor

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.optim.parameter_groups import count_blocks, layers_below
from clozeworks.optim.settings import Finetune, Train
from clozeworks.optim.unfreezing import GradualUnfreezing
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

EVERY = 2
TEXTS = [("fine warm", "good"), ("sour cold", "bad"), ("sweet the", "good"), ("poor is", "bad")]
ROWS = Table("rows", [{"text": text, "label": label} for text, label in TEXTS])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(text for text, _ in TEXTS)], vocab=80)


def recipe(tokenizer: Tokenizer, name: str = "bert_tiny", epochs: int = 8) -> Recipe:
    base = cw.recipe(name)
    base.encoder.vocab = tokenizer.size
    task = Classify(template=InputTemplate(length=16), summary=Summary(dense="own")).with_labels(ROWS)
    tune, train = (
        Finetune(epochs=epochs, batch_size=4, unfreeze_every=EVERY),
        Train(learning_rate=1e-2, guard=None, precision="fp32"),
    )
    made = make_finetune_recipe(base, task, len(ROWS), tune, train)
    made.train.keep.last, made.train.save_every, made.train.log_every = 100, 1, 1
    return made


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return dict(cw.load(run / f"step-{step:08}").model.named_parameters())


@pytest.mark.parametrize("name", ["bert_tiny", "albert_mini", "reformer_mini"])
def test_a_layer_stays_bit_for_bit_until_its_time(tokenizer: Tokenizer, tmp_path: Path, name: str):
    made = recipe(tokenizer, name)
    model = build(made)
    depth, uppermost = count_blocks(model), {}
    for each, parameter in model.named_parameters(remove_duplicate=False):
        below = layers_below(each, depth)
        uppermost[parameter] = min(below, uppermost.get(parameter, below))
    finetune_run(made, tokenizer, ROWS, None, tmp_path / "run", progress=False)
    before = {each: parameter.detach().clone() for each, parameter in model.named_parameters()}
    begun = {}
    for step in range(1, made.train.steps + 1):
        for each, now in weights(tmp_path / "run", step).items():
            if each not in begun and not now.equal(before[each]):
                begun[each] = step
    for each, parameter in model.named_parameters():
        expected = uppermost[parameter] * EVERY + 1
        if expected > made.train.steps:
            assert each not in begun, each
        elif parameter.ndim > 1 and "segments" not in each:
            assert begun[each] == expected, each
        else:
            assert begun.get(each, expected) >= expected, each


def test_a_resumed_run_ends_with_the_same_weights(tokenizer: Tokenizer, tmp_path: Path):
    made = recipe(tokenizer)
    whole = finetune_run(made, tokenizer, ROWS, None, tmp_path / "whole", progress=False)

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 4:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    finetune_run(made, tokenizer, ROWS, None, tmp_path / "cut", progress=False, writers=[Stop()])
    cut = finetune_run(made, tokenizer, ROWS, None, tmp_path / "cut", progress=False)
    assert cut.resumed == 4
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (whole.checkpoint / file).read_bytes() == (cut.checkpoint / file).read_bytes()


def test_what_never_learns_is_not_thawed(tokenizer: Tokenizer):
    model = build(recipe(tokenizer))
    model.encoder.embed.positions.requires_grad_(False)
    thaw = GradualUnfreezing(model, EVERY)
    thaw(10_000)
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert "encoder.embed.words.table.weight" in learning
    assert not any("positions" in name for name in learning)
    thaw(1)
    assert all(name.startswith("heads.") for name, parameter in model.named_parameters() if parameter.requires_grad)


def test_frozen_for_good_and_thawed_is_refused():
    with pytest.raises(RecipeError, match="frozen for good"):
        spec.check(Finetune(freeze=True, unfreeze_every=3), "tune")
    with pytest.raises(RecipeError, match="1 or more"):
        spec.check(Finetune(unfreeze_every=0), "tune")
