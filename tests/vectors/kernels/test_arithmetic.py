import numpy as np
import pytest

from clozeworks.vectors.kernels import arithmetic
from clozeworks.vectors.kernels.arithmetic import padded_rows, unpadded


@pytest.mark.parametrize("dim", [1, 3, 16, 100, 129])
def test_rows_begin_at_lines_of_the_cache_and_come_back(dim):
    table = padded_rows(7, dim)
    assert table.shape[1] % arithmetic.PAD == 0
    assert 0 <= table.shape[1] - dim < arithmetic.PAD
    assert table.ctypes.data % 64 == 0
    assert not table.any()
    wanted = np.random.default_rng(0).random((7, dim), np.float32)
    table[:, :dim] = wanted
    result = unpadded(table, dim)
    assert result.shape == (7, dim)
    assert np.array_equal(result, wanted)
    assert result.flags.c_contiguous


def test_large_tables_are_moved_in_steps(monkeypatch):
    table = padded_rows(50_000, 90)
    table[:, :90] = np.arange(50_000)[:, None] + np.arange(90) / 100
    wanted = table[:, :90].copy()
    assert np.array_equal(unpadded(table, 90), wanted)


@pytest.mark.parametrize("count", range(1, 10))
def test_sums_over_any_number_of_rows(count):
    rng = np.random.default_rng(count)
    width = 48
    table, targets, inputs = (rng.normal(size=(12, width)).astype(np.float32) for _ in range(3))
    weights = rng.normal(size=(12, 16)).astype(np.float32)
    rows = rng.integers(0, 12, 12)
    result = np.zeros((12, 16), np.float32)
    arithmetic.products(inputs, 3, targets, rows, count, result, 2, width)
    assert np.allclose(result[2, :count], targets[rows[:count]] @ inputs[3], atol=1e-5)
    assert not result[2, count:].any()
    after = table.copy()
    arithmetic.add_rows(after, 4, targets, rows, count, weights[5], width)
    assert np.allclose(after[4] - table[4], weights[5, :count] @ targets[rows[:count]], atol=1e-5)
    after = table.copy()
    arithmetic.add_rows(after, 4, inputs, rows, count, weights[:, 1], width)
    assert np.allclose(after[4] - table[4], weights[:count, 1] @ inputs[rows[:count]], atol=1e-5)
    mean = np.ones((1, width), np.float32)
    arithmetic.mean_rows(table, rows, count, mean, width)
    assert np.allclose(mean[0], table[rows[:count]].mean(0), atol=1e-6)
    after = table.copy()
    arithmetic.add_row(after, rows, count, mean, width)
    wanted = table.copy()
    np.add.at(wanted, rows[:count], mean[0])
    assert np.allclose(after, wanted, atol=1e-5)


def test_the_logistic_function_to_the_last_digits():
    x = np.concatenate([np.linspace(-17, 17, 2001), [-1e30, 1e30, 0]]).astype(np.float32)
    result = np.array([arithmetic.sigmoid(each) for each in x])
    exact = 1 / (1 + np.exp(-np.clip(x, -80, 80).astype(np.float64)))
    assert np.abs(result - exact).max() < 2e-7
    assert np.isnan(arithmetic.sigmoid(np.float32(np.nan)))
