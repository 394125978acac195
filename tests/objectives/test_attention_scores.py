import math

import pytest
import torch

from clozeworks.core.errors import RecipeError
from clozeworks.objectives.losses.attention_scores import AttentionScores
from clozeworks.objectives.objective import Outline
from tests.objectives.taught import PACKED, SINGLE, batch_in, documents, loss_of, pair

DEEP = {"width": 12, "heads": 2, "depth": 4}


def scores(model, batch, block: int) -> torch.Tensor:
    """[H, L, L] of one document, by hand."""
    x = model.encoder(batch.tokens, batch.token_info, batch.context(), layers=True).layers[block][0]
    mixer = model.encoder.stack.blocks[block].mixer
    size = x.shape[-1] // mixer.heads
    q, k = mixer.query(x), mixer.key(x)
    return torch.stack(
        [
            q[:, h * size : (h + 1) * size] @ k[:, h * size : (h + 1) * size].T / math.sqrt(size)
            for h in range(mixer.heads)
        ]
    )


def test_it_is_the_formula():
    student, teach = pair(AttentionScores(), **DEEP)
    batch, expected = batch_in(PACKED), 0.0
    for each in documents(batch):
        for mine, theirs in ((0, 1), (1, 3)):
            a, b = scores(student, each, mine), scores(teach.model, each, theirs)
            for i in range(each.real):
                for h in range(2):
                    for j in range(each.real):
                        expected = expected + (a[h, i, j] - b[h, i, j]) ** 2 / (2 * each.real)
    actual = student(teach(batch)).losses["attention_scores"]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    parameters = list(student.encoder.parameters())
    for a, b in zip(
        torch.autograd.grad(actual, parameters, allow_unused=True),
        torch.autograd.grad(expected, parameters, allow_unused=True),
        strict=True,
    ):
        assert (a is None or not a.any()) == (b is None or not b.any())
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_of_full_rows_it_is_the_published_mean():
    student, teach = pair(AttentionScores(), **DEEP)
    batch = batch_in(([[6], [6]], 6))
    mean = torch.zeros((), dtype=torch.float64)
    for mine, theirs in ((0, 1), (1, 3)):
        a, b = (
            torch.stack([scores(m, each, n) for each in documents(batch)])
            for m, n in ((student, mine), (teach.model, theirs))
        )
        mean = mean + torch.nn.functional.mse_loss(a, b)
    result = student(teach(batch)).losses["attention_scores"] / student.count(batch)["attention_scores"]
    torch.testing.assert_close(result, mean, rtol=1e-5, atol=1e-6)


def test_packed_is_single():
    loss = AttentionScores()
    torch.testing.assert_close(loss_of(loss, PACKED, **DEEP), loss_of(loss, SINGLE, **DEEP))


def test_only_what_is_compared_is_kept():
    _, teach = pair(AttentionScores(), **DEEP)
    hidden = teach(batch_in(PACKED)).teacher.hidden
    assert sorted(hidden.captured) == ["scores.1", "scores.3"]
    assert hidden.last.isnan().all()  # nobody reads it


def test_what_does_not_fit_is_refused():
    small = Outline("small", 8, (2, 2), frozenset())
    with pytest.raises(RecipeError, match=r"2 heads, and big has 4.*set encoder\.stack\.block\.mixer\.heads=4"):
        AttentionScores().compare("here", small, Outline("big", 8, (4,) * 4, frozenset()))
    with pytest.raises(RecipeError, match="big has layers without heads"):
        AttentionScores().compare("here", small, Outline("big", 8, (None,) * 4, frozenset()))
    with pytest.raises(RecipeError, match="at equal distances"):
        AttentionScores().compare("here", small, Outline("big", 8, (2,) * 3, frozenset()))
