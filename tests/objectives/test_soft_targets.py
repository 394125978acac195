import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clozeworks.core import spec
from clozeworks.core.batch import WordScores
from clozeworks.core.errors import RecipeError
from clozeworks.objectives.losses import cross_entropy
from clozeworks.objectives.losses.masked_lm import MaskedLM, MaskedLMLayer
from clozeworks.objectives.losses.soft_targets import SoftTargets, divergence
from clozeworks.recipes import recipe
from tests.objectives.taught import PACKED, SINGLE, VOCAB, batch_in, documents, loss_of, model_of, pair


def given(tokens: int = 13, words: int = 50, width: int = 8, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=dtype)  # noqa: E731
    student = WordScores(*(draw(*s).requires_grad_() for s in ((tokens, width), (words, width), (words,))))
    return student, WordScores(draw(tokens, width + 3), draw(words, width + 3), draw(words))


def plain(student: WordScores, teacher: WordScores, temperature: float) -> torch.Tensor:
    s, t = (F.linear(each.asked, each.table, each.bias) / temperature for each in (student, teacher))
    return temperature**2 * nn.KLDivLoss(reduction="sum")(s.log_softmax(-1), t.softmax(-1))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_in_pieces_it_is_the_divergence(monkeypatch, rows, temperature):
    student, teacher = given()
    monkeypatch.setattr(cross_entropy, "BUDGET", rows * 3 * 4 * 50)
    leaves = [student.asked, student.table, student.bias]
    mine, other = divergence(student, teacher, temperature), plain(student, teacher, temperature)
    torch.testing.assert_close(mine, other)
    for a, b in zip(torch.autograd.grad(3 * mine, leaves), torch.autograd.grad(3 * other, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_its_gradient(monkeypatch):
    student, teacher = given(5, 7, 3, torch.float64)
    monkeypatch.setattr(cross_entropy, "BUDGET", 2 * 3 * 8 * 7)
    run = lambda *leaves: divergence(WordScores(*leaves), teacher, 2.0)  # noqa: E731
    assert torch.autograd.gradcheck(run, (student.asked, student.table, student.bias))


def test_no_piece_is_larger_than_the_budget(monkeypatch):
    student, teacher = given(64, 500)
    monkeypatch.setattr(cross_entropy, "BUDGET", 10 * 3 * 4 * 500)
    seen = []

    class Look(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.ndim == 2 and out.shape[-1] == 500:
                seen.append(len(out))
            return out

    with Look():
        divergence(student, teacher, 2.0).backward()
    assert max(seen) == 10


@pytest.mark.parametrize(("own", "theirs"), [(50, 64), (64, 50)])
def test_rows_that_one_of_them_lacks_are_left_out(own, theirs):
    (student, _), (_, teacher) = given(words=own), given(words=theirs)
    leaves = [student.asked, student.table, student.bias]
    both = [WordScores(each.asked, each.table[:50], each.bias[:50]) for each in (student, teacher)]
    for a, b in zip(
        torch.autograd.grad(divergence(student, teacher, 2.0), leaves),
        torch.autograd.grad(plain(*both, 2.0), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_who_thinks_alike_has_no_loss():
    student, _ = given()
    assert divergence(student, student, 2.0).item() == pytest.approx(0.0, abs=1e-4)
    with torch.no_grad():
        assert not divergence(student, student, 2.0).requires_grad


def test_sure_models_that_disagree_have_a_finite_loss():
    x = torch.tensor([[300.0]], requires_grad=True)
    table = torch.tensor([[1.0], [-1.0], [0.0]])
    loss = divergence(WordScores(x, table, torch.zeros(3)), WordScores(-x.detach(), table, torch.zeros(3)), 1.0)
    assert loss.item() == pytest.approx(600.0)
    loss.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_under_autocast_it_stays_near_fp32():
    student, teacher = given()
    leaves = [student.asked, student.table, student.bias]
    exact = torch.autograd.grad(divergence(student, teacher, 2.0), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        loss = divergence(student, teacher, 2.0)
    assert loss.dtype == torch.float32
    for mine, other in zip(torch.autograd.grad(loss, leaves), exact, strict=True):
        torch.testing.assert_close(mine, other, atol=0.2, rtol=0.2)


# ---- in a model


def logits(model, batch) -> torch.Tensor:
    head = model.head("masked_lm")
    assert isinstance(head, MaskedLMLayer)
    return head.logits(model.encoder(batch.tokens, batch.token_info, batch.context()).last)[0]


def test_over_all_tokens_but_padding():
    student, teach = pair(SoftTargets())
    batch = batch_in(PACKED)
    expected = sum(
        4
        * F.kl_div(
            (logits(student, each) / 2).log_softmax(-1), (logits(teach.model, each) / 2).softmax(-1), reduction="sum"
        )
        for each in documents(batch)
    )
    output = student(teach(batch))
    torch.testing.assert_close(output.losses["soft_targets"], expected)
    assert student.count(batch)["soft_targets"] == 19
    torch.testing.assert_close(output.losses["masked_lm"], student(batch).losses["masked_lm"])


def test_over_the_hidden_tokens_alone():
    loss = SoftTargets(over="hidden")
    student, teach = pair(loss)
    batch = batch_in(SINGLE)
    taught = teach(batch)
    output = student(taught)
    flat = [torch.cat([logits(model, each) for each in documents(batch)]) for model in (student, teach.model)]
    solid = torch.full((batch.tokens.numel(),), -1)
    solid[(batch.token_info.document.flatten() >= 0).nonzero()[:, 0]] = torch.arange(19)
    s, t = (each[solid[batch.targets]] / 2 for each in flat)
    torch.testing.assert_close(
        output.losses["soft_targets"], 4 * F.kl_div(s.log_softmax(-1), t.softmax(-1), reduction="sum")
    )
    assert loss.count(batch) == len(batch.labels)
    unread = torch.ones(batch.tokens.numel(), dtype=torch.bool)
    unread[batch.targets] = False
    for hidden in (output.hidden, taught.teacher.hidden):  # nobody computed what nobody reads
        assert hidden.last.flatten(0, 1)[unread].isnan().all()


@pytest.mark.parametrize("over", ["tokens", "hidden"])
def test_packed_is_single(over):
    loss = SoftTargets(over=over)
    torch.testing.assert_close(loss_of(loss, PACKED), loss_of(loss, SINGLE))
    assert loss_of(loss, PACKED, width=12, heads=3, depth=4, vocab=VOCAB + 5) > 0


@pytest.mark.parametrize("over", ["tokens", "hidden"])
@pytest.mark.parametrize("order", [1, -1])
def test_the_students_head_runs_once(over, order, monkeypatch):
    student = model_of([SoftTargets(over=over), MaskedLM()][::order])
    _, teach = pair(SoftTargets(over=over))
    calls = []
    plain = MaskedLMLayer._asked
    monkeypatch.setattr(MaskedLMLayer, "_asked", lambda self, x: calls.append(self) or plain(self, x))
    student(teach(batch_in(PACKED)))
    assert len([head for head in calls if head is student.head("masked_lm")]) == 1


def test_without_a_teacher_it_is_not_computed():
    student, _ = pair(SoftTargets())
    assert set(student(batch_in(PACKED)).losses) == {"masked_lm"}


def test_it_reads_the_head_of_another_loss():
    r = recipe("bert_tiny")
    r.objective.losses = (SoftTargets(), *r.objective.losses[1:])
    with pytest.raises(RecipeError, match=r"losses\.0 = SoftTargets: it reads masked_lm.*MaskedLM among the losses"):
        spec.check(r, r.name)
    with pytest.raises(RecipeError, match=r"temperature = 0: a number above 0"):
        spec.check(SoftTargets(temperature=0), "loss")
