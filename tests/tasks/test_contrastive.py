"""Losses of pairs beside plain formulas, and ranks beside a sort."""

import numpy as np
import pytest
import torch

from clozeworks.tasks.contrastive import fits, ordered, picked, ranks, squared

DRAW = np.random.default_rng(0)


def unit(*shape: int) -> np.ndarray:
    vectors = DRAW.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def softmax_loss(scores: np.ndarray, hidden: np.ndarray, rows: np.ndarray) -> float:
    """sum over rows i of -log(exp(s_ii) / sum of exp(s_ij) of what is not hidden)."""
    total = 0.0
    for i in rows:
        kept = [scores[i, j] for j in range(scores.shape[1]) if not hidden[i, j]]
        total += np.log(np.exp(kept).sum()) - scores[i, i]
    return total


def test_the_square_and_the_order():
    cosine, target = DRAW.uniform(-1, 1, 9), DRAW.choice([0.0, 0.3, 1.0], 9)
    one, other = torch.tensor(cosine), torch.tensor(target)
    assert squared(one, other).item() == pytest.approx(((cosine - target) ** 2).sum())
    wrong = [np.exp(20 * (cosine[j] - cosine[i])) for i in range(9) for j in range(9) if target[i] > target[j]]
    assert ordered(one, other, 20.0).item() == pytest.approx(np.log(1 + np.sum(wrong)))
    assert ordered(one, torch.ones(9), 20.0).item() == 0.0  # nothing is more alike than anything
    one.requires_grad_()
    (slope,) = torch.autograd.grad(ordered(one, torch.ones(9), 20.0), one)
    assert not slope.any()


@pytest.mark.parametrize("texts", [2, 3])
@pytest.mark.parametrize("both", [False, True])
def test_the_softmax_over_a_step(texts: int, both: bool):
    vectors, right = unit(7, texts, 5), np.array([1, 1, 0, 1, 1, 0, 1], bool)
    text = np.arange(7 * texts).reshape(7, texts)
    loss, first = picked(torch.tensor(vectors), torch.tensor(text), torch.tensor(right), 20.0, both)
    others = np.concatenate([vectors[:, n] for n in range(1, texts)])
    scores = 20 * vectors[:, 0] @ others.T
    expected = softmax_loss(scores, np.zeros_like(scores, bool), np.flatnonzero(right))
    if both:
        back = 20 * vectors[:, 1] @ vectors[:, 0].T
        expected = (expected + softmax_loss(back, np.zeros_like(back, bool), np.flatnonzero(right))) / 2
    assert loss.item() == pytest.approx(expected)
    assert first.item() == sum(scores[i].argmax() == i for i in np.flatnonzero(right))


def test_what_fits_is_no_wrong_answer():
    a, b, c, d, e = range(5)
    pairs = [(a, b), (a, c), (d, b), (e, a), (a, e)]  # the last of them is wrong
    right = [True, True, True, True, False]
    names = [b, c, b, a, e, d, c]  # those of the pairs, and two more texts
    hidden = fits(*(torch.tensor(each) for each in zip(*pairs, strict=True)), torch.tensor(right), torch.tensor(names))
    answers = [
        # b     c      b      a      e      d      c
        [False, True, True, True, False, False, True],  # a: b is its own, c fits, and a is a itself
        [True, False, True, True, False, False, True],
        [True, False, False, False, False, True, False],  # d: b, and nothing but b
        [False, False, False, False, True, False, False],  # e: a
        [True, True, True, True, False, False, True],  # a: e does not fit it
    ]
    assert hidden.tolist() == answers
    vectors, text = unit(5, 2, 4), torch.tensor(pairs)
    loss, _ = picked(torch.tensor(vectors), text, torch.tensor(right), 20.0, False)
    scores = 20 * vectors[:, 0] @ vectors[:, 1].T
    assert loss.item() == pytest.approx(softmax_loss(scores, np.array(answers)[:, :5], np.arange(4)))


def test_ranks_are_places_in_a_sorted_list():
    vectors, text = unit(50, 2, 3), np.arange(100).reshape(50, 2)
    text[7], text[8, 1], text[9, 0] = text[6], text[3, 1], text[4, 0]
    vectors[7], vectors[8, 1], vectors[9, 0] = vectors[6], vectors[3, 1], vectors[4, 0]
    text[10, 1], vectors[10, 1] = text[11, 0], vectors[11, 0]  # a text that is asked for stands among the answers
    vectors[12, 1] = vectors[13, 1]  # two texts, one vector
    result = ranks(vectors, text)
    for i, (a, b) in enumerate(text):
        fitting = {name for other, name in text if other == a} | {a}
        cosines = {name: vectors[i, 0] @ vectors[j, 1] for j, (_, name) in enumerate(text)}
        above = [name for name, value in cosines.items() if value >= cosines[b] and name not in fitting]
        assert result[i] == 1 + len(above)
    assert result[12] > 1
    np.testing.assert_array_equal(ranks(vectors, text, rows=7), result)
    same = ranks(np.ones((4, 2, 1)), np.arange(8).reshape(4, 2))
    assert same.tolist() == [4, 4, 4, 4]  # vectors that are all alike find nothing
    assert len(ranks(np.zeros((0, 2, 3)), np.zeros((0, 2), int))) == 0
