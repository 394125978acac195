"""Which of a run's models is the best, and when a run has learned enough."""

from pathlib import Path
from typing import Any

import pytest
import torch

import clozeworks as cw
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint, tensors
from clozeworks.optim.settings import Train, Tune
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.frame import Frame
from clozeworks.train.finetune.evaluator import Examiner
from clozeworks.train.finetune.recipe import fitted
from clozeworks.train.finetune.train import finetune

ROWS = Table("rows", [{"text": "red fox", "label": "warm"}, {"text": "blue hen", "label": "cold"}] * 4)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["red fox blue hen"] * 9, vocab=64)


def test_a_figure_goes_before_a_loss_and_a_loss_before_a_step(tokenizer: Tokenizer):
    task = Classify(frame=Frame(length=16)).fitted(ROWS)
    examiner = Examiner(task, ROWS, tokenizer, "full", patience=2)
    worse, better = examiner.judge({"accuracy": 0.5, "loss": 0.1}), examiner.judge({"accuracy": 0.6, "loss": 2.0})
    assert better < worse
    assert examiner.judge({"accuracy": 0.6, "loss": 1.0}) < better
    for loss in (None, float("nan")):
        assert better < examiner.judge({"accuracy": 0.6, "loss": loss}) < worse
    falling = {step: examiner.judge({"accuracy": 0.6, "loss": 1 / step}) for step in (1, 2, 3)}
    assert examiner.enough(falling)  # no better figure for two evaluations
    assert not examiner.enough({1: worse, 2: better, 3: better})


def test_of_equal_figures_the_lowest_loss_is_published(tokenizer: Tokenizer, tmp_path: Path, monkeypatch):
    losses = iter([0.9, 0.4, 0.7])

    def measure(self: Examiner, model: Any, teach: Any) -> dict[str, Any]:
        return {"loss": next(losses), "accuracy": 1.0}

    monkeypatch.setattr(Examiner, "measure", measure)
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    task = Classify(frame=Frame(length=16)).fitted(ROWS)
    recipe = fitted(base, task, ROWS, len(ROWS), Tune(epochs=3, batch=4), Train(learning_rate=1e-3, guard=None))
    done = finetune(recipe, tokenizer, ROWS, ROWS, tmp_path / "run", progress=False)
    assert done.best == 4
    published = tensors.read(tmp_path / "run" / tensors.FILE)
    kept = checkpoint.Checkpoint(tmp_path / "run" / checkpoint.name_of(4), 0, {}).tensors()
    assert all(torch.equal(value, kept[name]) for name, value in published.items())
