"""Soft labels: the divergence that PyTorch's own losses give, and a place beside a task that classifies alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.errors import RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.nn.embed import EmbedLayer
from clozeworks.recipe import assemble
from clozeworks.tasks.classify import Classify, ClassifyLayer, Problem
from clozeworks.tasks.soft_labels import SoftLabels, soft_labels


def head(problem: Problem) -> ClassifyLayer:
    tokenizer = Tokenizer.train(["a text"], "wordpiece", 64)
    recipe = cw.recipe("bert_tiny")
    recipe.encoder.vocab = tokenizer.size
    labels = () if problem == "regression" else ("a", "b", "c")
    task = Classify(template=infer_template(recipe, tokenizer), labels=labels, problem=problem)
    embed = assemble(recipe).encoder.embed
    assert isinstance(embed, EmbedLayer)
    return task.build(recipe.encoder.width, embed)


def drawn(outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (3 * torch.randn(7, outputs, generator=generator, dtype=torch.float64) for _ in range(2))
    return student.requires_grad_(), teacher


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_it_is_the_divergence_of_the_softened_labels(temperature: float):
    student, teacher = drawn(3)
    cold = nn.KLDivLoss(reduction="sum")((student / temperature).log_softmax(-1), (teacher / temperature).softmax(-1))
    torch.testing.assert_close(head("single_label").divergence(student, teacher, temperature), temperature**2 * cold)


def test_of_several_labels_each_is_a_decision():
    student, teacher = drawn(3)
    two = [torch.stack([each, torch.zeros_like(each)], -1) / 2.0 for each in (student, teacher)]
    pairs = nn.KLDivLoss(reduction="sum")(two[0].log_softmax(-1), two[1].softmax(-1))
    torch.testing.assert_close(head("multi_label").divergence(student, teacher, 2.0), 4.0 * pairs / 3)


def test_of_numbers_it_is_the_square_of_the_difference():
    student, teacher = drawn(1)
    torch.testing.assert_close(head("regression").divergence(student, teacher, 2.0), F.mse_loss(student, teacher) * 7)


@pytest.mark.parametrize("problem", ["single_label", "multi_label", "regression"])
def test_a_student_that_agrees_has_nothing_to_learn(problem: Problem):
    _, teacher = drawn(1 if problem == "regression" else 3)
    student = teacher.clone().requires_grad_()
    loss = head(problem).divergence(student, teacher, 2.0)
    (gradient,) = torch.autograd.grad(loss, student)
    assert loss.abs() < 1e-12
    assert gradient.abs().max() < 1e-12


def test_without_its_task_it_is_refused():
    recipe = cw.recipe("bert_tiny")
    recipe.objective.losses = (*recipe.objective.losses, SoftLabels())
    with pytest.raises(RecipeError, match="it reads classify, which nothing writes"):
        cw.build(recipe)


def test_heads_that_decide_no_whole_examples_have_none():
    assert soft_labels(None, "classify", 1.0) is None
    assert soft_labels(head("single_label"), "tag", 1.0) is None
    assert soft_labels(head("single_label"), "pair", 0.5) == SoftLabels(weight=0.5, of="pair")
