"""Which of a run's models is the best, and when a run has learned enough."""

from pathlib import Path
from typing import Any

import pytest
import torch

import clozeworks as cw
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint, tensors
from clozeworks.optim.settings import Finetune, Train
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.evaluator import TaskEvaluator
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

ROWS = Table("rows", [{"text": "red fox", "label": "warm"}, {"text": "blue hen", "label": "cold"}] * 4)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["red fox blue hen"] * 9, vocab=64)


def test_a_figure_goes_before_a_loss_and_a_loss_before_a_step(tokenizer: Tokenizer):
    task = Classify(template=InputTemplate(length=16)).with_labels(ROWS)
    examiner = TaskEvaluator(task, ROWS, tokenizer, "full", patience=2)
    worse, better = examiner.score({"accuracy": 0.5, "loss": 0.1}), examiner.score({"accuracy": 0.6, "loss": 2.0})
    assert better < worse
    assert examiner.score({"accuracy": 0.6, "loss": 1.0}) < better
    for loss in (None, float("nan")):
        assert better < examiner.score({"accuracy": 0.6, "loss": loss}) < worse
    falling = {step: examiner.score({"accuracy": 0.6, "loss": 1 / step}) for step in (1, 2, 3)}
    assert examiner.should_stop(falling)  # no better figure for two evaluations
    assert not examiner.should_stop({1: worse, 2: better, 3: better})


def test_of_equal_figures_the_lowest_loss_is_published(tokenizer: Tokenizer, tmp_path: Path, monkeypatch):
    losses = iter([0.9, 0.4, 0.7])

    def measure(self: TaskEvaluator, model: Any, teach: Any) -> dict[str, Any]:
        return {"loss": next(losses), "accuracy": 1.0}

    monkeypatch.setattr(TaskEvaluator, "measure", measure)
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    task = Classify(template=InputTemplate(length=16)).with_labels(ROWS)
    recipe = make_finetune_recipe(
        base, task, len(ROWS), Finetune(epochs=3, batch_size=4), Train(learning_rate=1e-3, guard=None)
    )
    done = finetune_run(recipe, tokenizer, ROWS, ROWS, tmp_path / "run", progress=False)
    assert done.best == 4
    published = tensors.read(tmp_path / "run" / tensors.FILE)
    kept = checkpoint.Checkpoint(tmp_path / "run" / checkpoint.name_of(4), 0, {}).tensors()
    assert all(torch.equal(value, kept[name]) for name, value in published.items())
