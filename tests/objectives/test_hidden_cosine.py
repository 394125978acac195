import pytest
import torch
from torch import nn

from clozeworks.core.errors import RecipeError
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.objective import Outline
from tests.objectives.taught import PACKED, SINGLE, batch_in, documents, loss_of, pair


def test_it_is_the_published_loss():
    student, teach = pair(HiddenCosine(), depth=3)
    batch, expected = batch_in(PACKED), 0.0
    for each in documents(batch):
        s, t = (m.encoder(each.tokens, each.token_info, each.context()).last[0] for m in (student, teach.model))
        expected = expected + nn.CosineEmbeddingLoss(reduction="sum")(s, t, torch.ones(len(s)))
        for i in range(len(s)):
            assert s[i].norm() > 0
    torch.testing.assert_close(student(teach(batch)).losses["hidden_cosine"], expected, rtol=1e-5, atol=1e-5)
    assert student.count(batch)["hidden_cosine"] == 19


def test_packed_is_single():
    torch.testing.assert_close(loss_of(HiddenCosine(), PACKED), loss_of(HiddenCosine(), SINGLE))


def test_other_widths_are_refused():
    wide, narrow = Outline("big", 12, (2,), frozenset()), Outline("small", 8, (2,), frozenset())
    with pytest.raises(
        RecipeError, match=r"here = width 8, and big has 12.*equal widths; use HiddenStates\(width=12\)"
    ):
        HiddenCosine().compare("here", narrow, wide)
    HiddenCosine().compare("here", narrow, narrow)
