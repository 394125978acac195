"""The right option of a question: beside the softmax over its options."""

import pytest
import torch
from torch.nn import functional as F

from clozeworks.batch import Hidden
from clozeworks.data.prepare import prepare
from clozeworks.errors import RecipeError
from clozeworks.nn.embed import Embed
from clozeworks.objectives.losses.choice import Choice
from clozeworks.pretraining import build
from clozeworks.recipes import recipe
from clozeworks.train.run import pretrain
from tests.toys import batch_of, packed

WIDTH, LENGTH = 8, 6


def given(question: list[int], right: list[int]):
    torch.manual_seed(0)
    rows = len(question)
    batch = batch_of(packed([[LENGTH]] * rows, LENGTH, "causal"), torch.randint(0, 50, (rows, LENGTH)))
    batch.example["choice"] = torch.tensor(question)
    batch.example["choice_right"] = torch.tensor([row in right for row in range(rows)])
    batch.example["choice_at"] = torch.arange(rows) * LENGTH + torch.randint(0, LENGTH, (rows,))
    return batch, torch.randn(rows, LENGTH, WIDTH, requires_grad=True)


def test_it_is_the_cross_entropy_of_each_question():
    batch, x = given([0, 0, 4, 4, 4, 0, 9], [1, 4, 6])
    head = Choice().build(WIDTH, Embed().build(WIDTH, 50))
    loss, metrics = head(Hidden(x), batch)
    scores = head.logits(x.flatten(0, 1)[batch.example["choice_at"]])
    expected, right = torch.zeros(()), 0
    for options, answer in (([0, 1, 5], 1), ([2, 3, 4], 2), ([6], 0)):
        expected = expected + F.cross_entropy(scores[options][None], torch.tensor([answer]))
        right += int(scores[options].argmax()) == answer
    torch.testing.assert_close(loss, expected)
    assert metrics["choice_accuracy"].item() == right
    assert Choice().count(batch) == 3
    leaves = [x, *head.parameters()]
    for mine, other in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(mine, other)


def test_sure_and_wrong_is_finite():
    batch, x = given([0, 0], [0])
    head = Choice().build(WIDTH, Embed().build(WIDTH, 50))
    loss, _ = head(Hidden(x * 1e4), batch)
    assert loss.isfinite()


def test_a_batch_without_choices_passes_it_by():
    r = recipe("gpt_mini")
    r.encoder.vocab, r.encoder.stack.depth = 50, 1
    r.objective.losses += (Choice(),)
    model = build(r)
    batch, _ = given([0, 0, 1], [0, 2])
    batch.targets = batch.labels = torch.arange(5)
    assert set(model(batch).losses) == {"next_token", "choice"}
    assert model.count(batch) == {"next_token": 5, "choice": 2}
    batch.example = {}
    assert set(model(batch).losses) == {"next_token"}
    assert model.count(batch) == {"next_token": 5, "choice": 0}


def test_text_alone_cannot_train_it(tmp_path):
    prepare([{"text": "a small text of words and words"}] * 40, tmp_path / "data", vocab=100, heldout=0)
    r = recipe("gpt_mini")
    r.objective.losses += (Choice(),)
    with pytest.raises(RecipeError, match="it reads choices, and text has none"):
        pretrain(r, [(tmp_path / "data", 1.0)], tmp_path / "run")
