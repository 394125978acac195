import pytest
import torch

from clozeworks.core.errors import RecipeError
from clozeworks.objectives.losses.hidden_states import HiddenStates
from clozeworks.objectives.objective import Outline
from tests.objectives.taught import PACKED, SINGLE, batch_in, documents, loss_of, pair

WIDE = {"width": 12, "heads": 3, "depth": 4}


def test_it_is_the_formula():
    student, teach = pair(HiddenStates(width=12), **WIDE)
    batch, head = batch_in(PACKED), student.head("hidden_states")
    assert head is not None
    expected = 0.0
    for each in documents(batch):
        s, t = (
            m.encoder(each.tokens, each.token_info, each.context(), layers=True).layers for m in (student, teach.model)
        )
        for mine, theirs in ((0, 0), (1, 2), (2, 4)):
            for i in range(each.real):
                gap = head.map.weight @ s[mine][0, i] + head.map.bias - t[theirs][0, i]
                expected = expected + (gap**2).sum() / 12
    actual = student(teach(batch)).losses["hidden_states"]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    ours = torch.autograd.grad(actual, list(student.encoder.parameters()) + list(head.parameters()))
    plain = torch.autograd.grad(expected, list(student.encoder.parameters()) + list(head.parameters()))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_packed_is_single():
    torch.testing.assert_close(
        loss_of(HiddenStates(width=12), PACKED, **WIDE), loss_of(HiddenStates(width=12), SINGLE, **WIDE)
    )


def test_what_does_not_fit_is_refused():
    small = Outline("small", 8, (2, 2), frozenset())
    with pytest.raises(RecipeError, match=r"here\.width = None: big has hidden states of width 12; use 12"):
        HiddenStates().compare("here", small, Outline("big", 12, (2,) * 4, frozenset()))
    with pytest.raises(RecipeError, match=r"2 layers, and big has 3.*set encoder\.stack\.depth to one of 1, 3"):
        HiddenStates().compare("here", small, Outline("big", 8, (2,) * 3, frozenset()))
