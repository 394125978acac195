import pytest
import torch

from clozeworks.core.batch import Batch, TeacherOutput
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import PADDING
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_vectors import SentenceVectors, mean_vectors
from clozeworks.objectives.objective import Outline
from tests.objectives import taught as documents_in
from tests.objectives.taught import PACKED, SINGLE, documents, model_of


def batch_in(layout: tuple[list[list[int]], int]) -> Batch:
    """Each document an example."""
    batch = documents_in.batch_in(layout)
    real = batch.token_info.document.flatten()
    starts = [start for start in batch.layout.starts if real[start] != PADDING]
    return batch.replace(firsts=torch.tensor(starts))


def taught(batch: Batch, vectors: torch.Tensor) -> Batch:
    return batch.replace(teacher=TeacherOutput(hidden=None, vectors=vectors))  # pyright: ignore[reportArgumentType]


def vectors_of(count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(3), dtype=torch.double)


def test_it_is_the_formula_and_reaches_the_encoder():
    student, batch = model_of([SentenceVectors(width=12), MaskedLM()]), batch_in(PACKED)
    head, theirs = student.head("sentence_vectors"), vectors_of(5, 12)
    assert head is not None
    expected = torch.zeros((), dtype=torch.double)
    for each, vector in zip(documents(batch), theirs, strict=True):
        states = student.encoder(each.tokens, each.token_info, each.context()).last[0]
        mine = head.map.weight @ states.mean(0)
        expected = expected + 1 - mine @ vector / (mine.norm() * vector.norm())
    actual = student(taught(batch, theirs)).losses["sentence_vectors"]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    weights = [*student.encoder.parameters(), *head.parameters()]
    ours, plain = (torch.autograd.grad(each, weights, allow_unused=True) for each in (actual, expected))
    for a, b in zip(ours, plain, strict=True):
        assert a is not None
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert ours[0] is not None
    assert ours[0].any()  # the table of words, before all layers


def test_it_is_nothing_where_both_have_the_same_vectors():
    student, batch = model_of([SentenceVectors(), MaskedLM()]), batch_in(PACKED)
    head = student.head("sentence_vectors")
    assert head is not None
    with torch.no_grad():
        head.map.weight.copy_(torch.eye(8))
        theirs = mean_vectors(student.encoder(batch.tokens, batch.token_info, batch.context()).last, batch)
        output = student(taught(batch, 3 * theirs))
    assert float(output.losses["sentence_vectors"]) == pytest.approx(0.0, abs=1e-9)


def test_packed_is_single_and_padding_counts_nothing():
    student, theirs = model_of([SentenceVectors(width=12), MaskedLM()]), vectors_of(5, 12)
    one, other = (student(taught(batch_in(layout), theirs)).losses["sentence_vectors"] for layout in (PACKED, SINGLE))
    torch.testing.assert_close(one, other)


def test_means_are_those_of_the_tokens_of_each_example():
    batch = batch_in(PACKED)
    last = torch.randn(2, 11, 4, dtype=torch.double)
    last[1, 9:] = torch.nan  # padding, which nobody computed
    means = mean_vectors(last, batch)
    expected = [last[0, :5], last[0, 5:8], last[0, 8:10], last[1, :7], last[1, 7:9]]
    torch.testing.assert_close(means, torch.stack([each.mean(0) for each in expected]))


def test_each_example_counts_once():
    assert SentenceVectors().count(batch_in(PACKED)) == 5


def test_without_a_teacher_it_is_not_computed():
    student = model_of([SentenceVectors(), MaskedLM()])
    assert set(student(batch_in(PACKED)).losses) == {"masked_lm"}


def test_the_width_is_the_teachers():
    small, big = Outline("small", 8, (2, 2), frozenset()), Outline("big", 12, (2,) * 3, frozenset())
    assert SentenceVectors(2.0).fitted(big) == SentenceVectors(2.0, width=12)
    SentenceVectors(width=12).compare("here", small, big)
    assert SentenceVectors(width=8).fitted(big).width == 8
    with pytest.raises(RecipeError, match=r"here\.width = 8: big has sentence vectors of width 12; use 12, or None"):
        SentenceVectors(width=8).compare("here", small, big)


def test_a_text_of_zeros_is_finite():
    student, batch = model_of([SentenceVectors(width=12), MaskedLM()]), batch_in(PACKED)
    with torch.no_grad():
        loss = student(taught(batch, torch.zeros(5, 12, dtype=torch.double))).losses["sentence_vectors"]
    assert float(loss) == pytest.approx(5.0)
