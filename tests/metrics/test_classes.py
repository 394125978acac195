"""Figures of classes: beside numbers of scikit-learn, and what they must be by definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.metrics.classes import confusion, several

TRUTH, TOLD = list("abacabbcacdb"), list("aaacbbbcacab")
answers = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=40)


def test_it_is_what_scikit_learn_finds():
    result = confusion(TRUTH, TOLD)
    assert result.labels == ("a", "b", "c", "d")
    assert result.counts.tolist() == [[3, 1, 0, 0], [1, 3, 0, 0], [0, 0, 3, 0], [1, 0, 0, 0]]
    assert result.accuracy == result.micro_f1 == 0.75
    assert result.macro_f1 == pytest.approx(0.6041666666666666)
    assert result.matthews == pytest.approx(0.6433933040369626)
    assert result.classes["a"] == pytest.approx((0.6, 0.75, 2 / 3, 4))
    assert result.classes["d"] == (0.0, 0.0, 0.0, 1)


def test_it_is_what_scikit_learn_finds_of_several_labels():
    truth = [["x", "z"], ["y"], ["x", "y"], [], ["x"]]
    predicted = [["x"], ["y"], ["x", "z"], ["y"], ["x"]]
    result = several(truth, predicted, ["x", "y", "z"])
    assert [each.f1 for each in result.classes.values()] == [1.0, 0.5, 0.0]
    assert (result.macro_f1, result.micro_f1, result.accuracy) == (0.5, pytest.approx(2 / 3), 0.4)


@given(answers)
def test_all_right_is_one_and_nothing_leaves_its_bounds(pairs):
    truth, predicted = zip(*pairs, strict=True)
    result, perfect = confusion(truth, predicted), confusion(truth, truth)
    assert perfect.accuracy == perfect.macro_f1 == 1
    assert perfect.matthews == (pytest.approx(1) if len(set(truth)) > 1 else 0)
    assert 0 <= result.accuracy <= 1
    assert 0 <= result.macro_f1 <= 1
    assert -1 - 1e-12 <= result.matthews <= 1 + 1e-12
    assert sum(each.support for each in result.classes.values()) == len(pairs)
    turned = confusion(predicted, truth)
    assert turned.matthews == pytest.approx(result.matthews)
    assert turned.macro_f1 == pytest.approx(result.macro_f1)


@given(answers)
def test_a_class_that_is_nowhere_changes_nothing(pairs):
    truth, predicted = zip(*pairs, strict=True)
    result, more = confusion(truth, predicted), confusion(truth, predicted, ("a", "b", "c", "d", "e"))
    assert more.macro_f1 == pytest.approx(result.macro_f1)
    assert more.matthews == pytest.approx(result.matthews)
    assert more.classes["e"] == (0.0, 0.0, 0.0, 0)


@given(answers)
def test_matthews_is_the_correlation_of_two_classes(pairs):
    truth, predicted = (["a" if each == "a" else "b" for each in side] for side in zip(*pairs, strict=True))
    result = confusion(truth, predicted, ("a", "b")).matthews
    x, y = (np.array([each == "a" for each in side], float) for side in (truth, predicted))
    assert result == pytest.approx(np.corrcoef(x, y)[0, 1] if x.std() and y.std() else 0.0)


def test_nothing_to_measure_is_nought():
    assert confusion([], []).accuracy == confusion([], []).macro_f1 == confusion([], []).matthews == 0
    assert several([], [], ["x"]).micro_f1 == 0
    assert confusion(["a"], ["a"]).matthews == 0
