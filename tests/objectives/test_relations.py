import math

import pytest
import torch

from clozeworks.core.errors import RecipeError
from clozeworks.objectives.losses.relations import Relations
from clozeworks.objectives.objective import Outline
from tests.objectives.taught import PACKED, SINGLE, batch_in, documents, loss_of, pair
from tests.objectives.test_attention_scores import scores

OTHER = {"width": 12, "heads": 2, "depth": 3}


def values(model, batch) -> torch.Tensor:
    """[H, L, L]: products of the last block's values in one document, by hand."""
    x = model.encoder(batch.tokens, batch.token_info, batch.context(), layers=True).layers[-2][0]
    mixer = model.encoder.stack.blocks[-1].mixer
    size, v = x.shape[-1] // mixer.heads, mixer.value(x)
    heads = [v[:, h * size : (h + 1) * size] for h in range(mixer.heads)]
    return torch.stack([each @ each.T / math.sqrt(size) for each in heads])


def test_it_is_the_formula():
    student, teach = pair(Relations(), **OTHER)
    batch, expected = batch_in(PACKED), 0.0
    for each in documents(batch):
        for s, t in (
            (scores(student, each, 1), scores(teach.model, each, 2)),
            (values(student, each), values(teach.model, each)),
        ):
            for h in range(2):
                for i in range(each.real):
                    p, q = t[h, i].softmax(0), s[h, i].softmax(0)
                    expected = expected + sum(p[j] * (p[j] / q[j]).log() for j in range(each.real)) / 2
    actual = student(teach(batch)).losses["relations"]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    parameters = list(student.encoder.parameters())
    for a, b in zip(
        torch.autograd.grad(actual, parameters, allow_unused=True),
        torch.autograd.grad(expected, parameters, allow_unused=True),
        strict=True,
    ):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert student.count(batch)["relations"] == 19


def test_packed_is_single():
    torch.testing.assert_close(loss_of(Relations(), PACKED, **OTHER), loss_of(Relations(), SINGLE, **OTHER))


def test_who_relates_alike_has_no_loss():
    student, teach = pair(Relations())
    teach.model.load_state_dict(student.state_dict())
    assert student(teach(batch_in(PACKED))).losses["relations"].item() == pytest.approx(0.0, abs=1e-6)


def test_only_the_last_layer_is_kept():
    _, teach = pair(Relations(), **OTHER)
    assert sorted(teach(batch_in(PACKED)).teacher.hidden.captured) == ["scores.2", "values.2"]


def test_other_heads_are_refused():
    with pytest.raises(RecipeError, match="2 heads, and big has 3"):
        Relations().compare("here", Outline("a", 8, (2, 2), frozenset()), Outline("big", 9, (2, 2, 3), frozenset()))
