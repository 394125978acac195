"""Correlations: beside numbers of scipy, and what they must be by definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.metrics.scores import mean_squared_error, pearson, ranks, spearman

X, Y = [1, 2, 2, 3.5, 4, 4, 4, 0, 5, 2], [0.3, 0.1, 0.4, 0.4, 0.9, 0.2, 0.4, 0.1, 1.0, 0.4]
pairs = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30)


def test_it_is_what_scipy_finds():
    assert pearson(X, Y) == pytest.approx(0.678304320471083, abs=1e-14)
    assert spearman(X, Y) == pytest.approx(0.6688414083431398, abs=1e-14)
    assert ranks(np.array(X)).tolist() == [2.0, 4.0, 4.0, 6.0, 8.0, 8.0, 8.0, 1.0, 10.0, 4.0]


@given(pairs)
def test_it_is_numpys_where_both_vary(given):
    x, y = (np.array(side, float) for side in zip(*given, strict=True))
    expected = np.corrcoef(x, y)[0, 1] if x.std() and y.std() else 0.0
    assert pearson(x.tolist(), y.tolist()) == pytest.approx(expected, abs=1e-12)


@given(pairs)
def test_ranks_are_counted(given):
    x = np.array([a for a, _ in given], float)
    below, same = (x[None] < x[:, None]).sum(1), (x[None] == x[:, None]).sum(1)
    assert ranks(x).tolist() == (below + (same + 1) / 2).tolist()


@given(pairs)
def test_any_rising_scale_has_the_same_spearman(given):
    x, y = (list(side) for side in zip(*given, strict=True))
    result = spearman(x, y)
    assert spearman([np.exp(a) for a in x], [b**3 for b in y]) == pytest.approx(result, abs=1e-12)
    assert spearman([-a for a in x], y) == pytest.approx(-result, abs=1e-12)


def test_what_does_not_vary_goes_with_nothing():
    assert pearson([1, 1, 1], [1, 2, 3]) == pearson([1, 2, 3], [2, 2, 2]) == 0
    assert spearman([3], [4]) == spearman([], []) == mean_squared_error([], []) == 0
    assert pearson([0.1] * 3, [1, 2, 3]) == 0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_scale_is_no_matter(scale: float):
    assert pearson([scale * x for x in X], Y) == pytest.approx(pearson(X, Y), abs=1e-12)


def test_the_mean_squared_error():
    assert mean_squared_error([1, 2], [0, 4]) == 2.5
