import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import counter_rng


@given(st.integers(0, 2**63), st.integers(0, 2**31), st.integers(0, 2**31))
def test_one_key_at_a_time_equals_all_at_once(seed, a, b):
    together = counter_rng.fold(seed, np.array([a, b]))
    assert together[0] == counter_rng.fold(seed, a)
    assert together[1] == counter_rng.fold(seed, b)
    assert counter_rng.uniform(together)[1] == counter_rng.uniform(counter_rng.fold(seed, b))


def test_numbers_are_uniform_and_independent_of_their_neighbours():
    u = counter_rng.uniform(counter_rng.fold(7, "site"), np.arange(200_000))
    assert 0 <= u.min() < u.max() < 1
    counts = np.histogram(u, 100, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 150  # chi-square, 99 degrees of freedom: 99.9 % below 149
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01
    other = counter_rng.uniform(counter_rng.fold(7, "elsewhere"), np.arange(200_000))
    assert abs(np.corrcoef(u, other)[0, 1]) < 0.01


def test_keys_of_neighbouring_examples_share_nothing():
    keys = counter_rng.fold(0, np.arange(1000))
    assert len(np.unique(keys)) == 1000
    table = counter_rng.uniform(keys[:, None], np.arange(64)[None])
    assert len(np.unique(table)) == table.size


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_below_covers_its_range_evenly(limit):
    result = counter_rng.below(limit, counter_rng.fold(3), np.arange(50_000))
    counts = np.bincount(result, minlength=limit)
    assert len(counts) == limit
    assert counts.min() > 0.4 * 50_000 / limit
    assert counts.max() < 1.7 * 50_000 / limit


def test_a_permutation_is_one():
    order = counter_rng.permutation(1000, counter_rng.fold(1, "order"))
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != list(range(1000))
    assert order.tolist() != counter_rng.permutation(1000, counter_rng.fold(2, "order")).tolist()


def test_the_numbers_never_change():
    """Golden: a run resumed with a later version must see the same examples."""
    assert int(counter_rng.fold(0, 1, "corrupt", 2)) == GOLDEN[0]
    assert counter_rng.below(1000, counter_rng.fold(5), np.arange(5)).tolist() == GOLDEN[1]


GOLDEN = (3532175620451542941, [386, 752, 232, 99, 187])
