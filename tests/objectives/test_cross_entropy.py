import pytest
import torch
from torch.nn import functional as F

from clozeworks.core.batch import Hidden, from_padded
from clozeworks.nn.embed import Embed
from clozeworks.objectives.losses import cross_entropy as module
from clozeworks.objectives.losses.cross_entropy import Mix, cross_entropy, mixed
from clozeworks.objectives.losses.next_token import NextToken


def given(predictions: int = 13, words: int = 50, width: int = 8, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((predictions, width), (words, width), (words,))
    x, table, bias = (torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes)
    return x, table, bias, torch.randint(words, (predictions,), generator=generator)


@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_in_pieces_it_is_the_cross_entropy(monkeypatch, rows):
    x, table, bias, labels = given()
    monkeypatch.setattr(module, "BUDGET", rows * 4 * len(table))
    logits = F.linear(x, table, bias)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    loss, right = cross_entropy(x, table, bias, labels)
    torch.testing.assert_close(loss, expected)
    assert right.item() == (logits.argmax(-1) == labels).sum().item()
    for mine, other in zip(
        torch.autograd.grad(3 * loss, [x, table, bias]),
        torch.autograd.grad(3 * expected, [x, table, bias]),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_its_gradient(monkeypatch):
    x, table, bias, labels = given(5, 7, 3, torch.float64)
    monkeypatch.setattr(module, "BUDGET", 2 * 8 * len(table))
    assert torch.autograd.gradcheck(lambda *given: cross_entropy(*given, labels)[0], (x, table, bias))


def test_a_sure_and_wrong_model_has_a_finite_loss():
    x = torch.tensor([[200.0], [200.0]], requires_grad=True)
    table = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    loss, right = cross_entropy(x, table, torch.zeros(3, requires_grad=True), torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(400.0)  # 0 for the first, 200 - -200 for the second
    assert right.item() == 1
    loss.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_no_tensor_of_logits_is_larger_than_the_budget(monkeypatch):
    x, table, bias, labels = given(64, 500)
    monkeypatch.setattr(module, "BUDGET", 10 * 4 * 500)
    seen = []

    class Look(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor) and tensor.shape[-1:] == (500,):
                    seen.append(tensor.nbytes)
            return out

    with Look():
        cross_entropy(x, table, bias, labels)[0].backward()
    assert max(seen) == module.BUDGET


def test_without_predictions_it_is_nought():
    x, table, bias, labels = given(0)
    loss, right = cross_entropy(x, table, bias, labels)
    loss.backward()
    assert (loss.item(), right.item()) == (0.0, 0)
    assert table.grad is not None
    assert not table.grad.any()


def test_where_nothing_is_learned_nothing_is_kept():
    x, table, bias, labels = given()
    with torch.no_grad():
        loss, _ = cross_entropy(x, table, bias, labels)
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(x, table, bias), labels, reduction="sum").detach())


def test_under_autocast_it_stays_near_fp32():
    x, table, bias, labels = given()
    exact = torch.autograd.grad(cross_entropy(x, table, bias, labels)[0], [x, table, bias])
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = cross_entropy(x, table, bias, labels)
    assert loss.dtype == torch.float32
    for mine, other in zip(torch.autograd.grad(loss, [x, table, bias]), exact, strict=True):
        torch.testing.assert_close(mine, other, atol=0.1, rtol=0.1)


def test_without_a_bias_it_is_a_bias_of_nought():
    torch.manual_seed(0)
    x, table, labels = torch.randn(7, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True), torch.arange(7)
    actual = torch.autograd.grad(cross_entropy(x, table, None, labels)[0], (x, table))
    expected = torch.autograd.grad(cross_entropy(x, table, torch.zeros(11), labels)[0], (x, table))
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("spread", ["others", "all"])
def test_smoothed_labels_are_the_cross_entropy_with_their_distribution(monkeypatch, rows, spread):
    x, table, bias, labels = given()
    monkeypatch.setattr(module, "BUDGET", rows * 4 * len(table))
    mix = NextToken(smoothing=0.1, spread=spread).mix(len(table))
    assert mix is not None
    logits = F.linear(x, table, bias)
    other = 0.1 / (len(table) - 1 if spread == "others" else len(table))
    q = torch.full_like(logits, other).scatter(1, labels[:, None], 0.9 if spread == "others" else 0.9 + other)
    torch.testing.assert_close(q.sum(-1), torch.ones(len(q)))
    expected = -(q * logits.log_softmax(-1)).sum()
    if spread == "all":
        theirs = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.1)
        torch.testing.assert_close(expected, theirs)
    loss, right, certain = mixed(x, table, bias, labels, mix)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(certain, F.cross_entropy(logits, labels, reduction="sum"))
    assert not certain.requires_grad
    assert right.item() == (logits.argmax(-1) == labels).sum().item()
    for mine, there in zip(
        torch.autograd.grad(3 * loss, [x, table, bias]),
        torch.autograd.grad(3 * expected, [x, table, bias]),
        strict=True,
    ):
        torch.testing.assert_close(mine, there, rtol=1e-5, atol=1e-5)


def test_smoothed_labels_have_their_own_gradient_to_the_last_digit():
    x, table, bias, labels = given(5, 7, 3, torch.float64)
    mix = Mix(0.7, 0.3 / 7)
    assert torch.autograd.gradcheck(lambda *given: mixed(*given, labels, mix)[0], (x, table, bias))


def test_held_out_text_is_measured_by_certain_labels():
    width, words = 8, 30
    embed = Embed(None, segments=0, norm=None).build(width, words)
    plain, smoothed = (NextToken(smoothing=rate).build(width, embed) for rate in (0.0, 0.1))
    generator = torch.Generator().manual_seed(0)
    batch = from_padded(torch.randint(words, (2, 5), generator=generator), kind="causal")
    batch.targets, batch.labels = torch.arange(10), torch.randint(words, (10,), generator=generator)
    hidden = Hidden(torch.randn(2, 5, width, generator=generator))
    loss, metrics = smoothed(hidden, batch)
    expected, other = plain(hidden, batch)
    torch.testing.assert_close(metrics["next_certain"], expected)
    assert metrics["next_accuracy"] == other["next_accuracy"]
    assert float(loss.detach()) != pytest.approx(float(expected.detach()))
    with torch.no_grad():
        loss, metrics = smoothed(hidden, batch)
    assert set(metrics) == {"next_accuracy"}
    torch.testing.assert_close(loss, expected.detach())
