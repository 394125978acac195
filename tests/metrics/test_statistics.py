"""Differences with their intervals and tests, against other libraries and every case that there is."""

import itertools
import math

import numpy as np
import pytest

from clozeworks.metrics.scores import spearman
from clozeworks.metrics.statistics import (
    EXACT,
    mcnemar,
    mean_difference,
    mean_interval,
    metric_differences,
    randomization_test,
    student_quantile,
)

scipy_stats = pytest.importorskip("scipy.stats")


def test_a_pair_cancels_what_is_hard_for_both():
    draw = np.random.default_rng(0)
    hard = draw.normal(0.0, 5.0, 200)
    ours, theirs = hard + 0.3 + draw.normal(0, 0.5, 200), hard + draw.normal(0, 0.5, 200)
    result = mean_difference(ours, theirs)
    assert result.value == pytest.approx(ours.mean() - theirs.mean())
    assert result.high - result.low == pytest.approx(2 * 1.96 * (ours - theirs).std() / math.sqrt(200), rel=0.1)
    assert result.significant
    assert result.low < result.value < result.high


def test_the_interval_is_that_of_scipy():
    draw = np.random.default_rng(1)
    ours, theirs = draw.gamma(2.0, 1.0, 60), draw.gamma(2.1, 1.0, 60)
    known = scipy_stats.bootstrap(
        (ours, theirs),
        lambda a, b, axis: (a - b).mean(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    result = mean_difference(ours, theirs, draws=20_000)
    assert (result.low, result.high) == pytest.approx((known.low, known.high), abs=0.02)


def test_the_same_seed_gives_the_same_and_pieces_do_not_matter(monkeypatch):
    values = np.random.default_rng(3).normal(size=(2, 50))
    result = mean_difference(*values, seed=4)
    assert result == mean_difference(*values, seed=4) != mean_difference(*values, seed=5)
    monkeypatch.setattr("clozeworks.metrics.statistics.CELLS", 150)
    assert mean_difference(*values, seed=4) == result


def test_an_example_with_weight_counts_so_often():
    ours, theirs, weights = [1.0, 4.0], [0.0, 0.0], [3, 1]
    result = mean_difference(ours, theirs, weights)
    assert result.value == pytest.approx(7 / 4)
    assert (result.low, result.high) == (1.0, 4.0)  # samples of one of the two are among them


def test_equal_systems_differ_by_nothing():
    result = mean_difference([1.0, 2.0], [1.0, 2.0])
    assert result == (0.0, 0.0, 0.0)
    assert not result.significant
    assert randomization_test([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert all(math.isnan(each) for each in mean_difference([], []))
    with pytest.raises(ValueError, match="one figure of each"):
        mean_difference([1.0], [1.0, 2.0])


def test_a_metric_of_the_whole_set_is_computed_again_for_each_sample():
    draw = np.random.default_rng(5)
    truth = draw.normal(size=120)
    ours, theirs = truth + draw.normal(0, 0.3, 120), truth + draw.normal(0, 2.0, 120)
    seen = []

    def metric(values: np.ndarray):
        def score(rows: np.ndarray) -> dict[str, float]:
            seen.append(rows.copy())
            return {"spearman": spearman(truth[rows], values[rows])}

        return score

    result = metric_differences(metric(ours), metric(theirs), 120)["spearman"]
    assert result.value == pytest.approx(spearman(truth, ours) - spearman(truth, theirs))
    assert 0 < result.low < result.value < result.high < 2
    assert all((one == other).all() for one, other in zip(seen[::2], seen[1::2], strict=True))  # the same for both
    assert metric_differences(metric(ours), metric(ours), 0) == {}


def test_of_few_examples_every_exchange_is_tried():
    ours, theirs = [3.0, 1.0, 4.0, 1.0, 5.0], [2.0, 1.5, 1.0, 1.0, 4.0]
    differences = np.subtract(ours, theirs)
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((1, -1), repeat=5)]
    exact = np.mean([each >= abs(differences.sum()) - 1e-9 for each in sums])
    assert randomization_test(ours, theirs) == pytest.approx(exact)


def test_of_many_examples_some_are_drawn():
    draw = np.random.default_rng(6)
    ours, theirs = draw.normal(0.2, 1, EXACT + 30), np.zeros(EXACT + 30)
    known = scipy_stats.permutation_test(
        (ours, theirs), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples", vectorized=True,
        n_resamples=20_000, rng=np.random.default_rng(7),
    ).pvalue  # fmt: skip
    assert randomization_test(ours, theirs) == pytest.approx(known, abs=0.015)
    assert randomization_test(ours + 5, theirs) == pytest.approx(1 / 20_001)


@pytest.mark.parametrize(("only_one", "only_other"), [(0, 0), (5, 0), (1, 9), (30, 18), (7, 7), (6000, 5900)])
def test_mcnemar_is_the_binomial_test(only_one: int, only_other: int):
    ours = [True] * only_one + [False] * only_other + [True, False]
    theirs = [False] * only_one + [True] * only_other + [True, False]
    trials = only_one + only_other
    known = scipy_stats.binomtest(only_one, trials).pvalue if trials else 1.0
    assert mcnemar(ours, theirs) == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 101])
def test_students_quantiles(freedom: int):
    for share in (0.5, 0.9, 0.975, 0.995):
        assert student_quantile(share, freedom) == pytest.approx(scipy_stats.t.ppf(share, freedom), abs=1e-9)


def test_the_interval_of_seeds():
    values = [0.81, 0.84, 0.80]
    known = scipy_stats.t.interval(0.95, 2, np.mean(values), scipy_stats.sem(values))
    result = mean_interval(values)
    assert result.value == pytest.approx(np.mean(values))
    assert (result.low, result.high) == pytest.approx(known)
    assert math.isnan(mean_interval([1.0]).low)
    assert mean_interval([1.0]).value == 1.0
