"""The kernels against closed forms in float64, draw by draw, and the statistics of what they draw."""

import numpy as np
import pytest

from clozeworks.vectors.kernels import noise, windows
from clozeworks.vectors.kernels.arithmetic import padded_rows
from clozeworks.vectors.kernels.huffman import tree_of

MASK = (1 << 64) - 1
STAR = 2685821657736338717
COUNTS = np.array([9, 7, 5, 4, 3, 2, 2, 1])


class Draws:
    """xorshift64* as Vigna 2016 has it."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        state = self.state
        state ^= state >> 12
        state = (state ^ (state << 25)) & MASK
        self.state = state ^ (state >> 27)
        return self.state * STAR & MASK

    def below(self, limit):
        return (self.next() >> 32) * limit >> 32

    def noise(self, thresholds, aliases):
        bits = self.next()
        slot = (bits >> 32) * len(thresholds) >> 32
        return slot if bits & 0xFFFFFFFF <= thresholds[slot] else int(aliases[slot])


def logistic(x):
    return 1 / (1 + np.exp(-x))


def loss_of(inputs, targets, labels):
    x = np.atleast_2d(inputs) @ targets.T
    return -(labels * np.log(logistic(x)) + (1 - labels) * np.log(logistic(-x))).sum()


def reference(sentences, inputs, outputs, keep, alias, tree, window, negative, bags, shared, rate, seed):
    """The whole pass, in float64 and by the formulas, with the gradients as (sigmoid(x) - label) u and h."""
    rng = Draws(seed)
    for sentence in sentences:
        kept = [word for word in sentence if int(keep[word]) >= rng.next() >> 32]
        for at, word in enumerate(kept):
            radius = 1 + rng.below(window)
            around = kept[max(0, at - radius) : at] + kept[at + 1 : at + 1 + radius]
            if not around:
                continue
            groups = [[other] for other in around] if not (shared or bags or negative == 0) else [around]
            for rows in groups:
                if negative:
                    drawn = [rng.noise(*alias) for _ in range(negative)]
                    targets = [word, *(other for other in drawn if other != word)]
                    labels = np.eye(len(targets))[0]
                else:
                    begin, end = tree.starts[word], tree.starts[word + 1]
                    targets, labels = tree.points[begin:end].tolist(), 1.0 - tree.bits[begin:end]
                h = inputs[rows].mean(0, keepdims=True) if bags else inputs[rows]
                u = outputs[targets]
                step = rate * (labels - logistic(h @ u.T))
                np.add.at(outputs, targets, step.T @ h)
                np.add.at(inputs, rows, np.repeat(step @ u, len(rows), 0) if bags else step @ u)


@pytest.mark.parametrize("bags", [False, True])
@pytest.mark.parametrize(("negative", "shared"), [(3, True), (3, False), (0, True)])
@pytest.mark.parametrize("sample", [0.0, 0.05])
def test_a_pass_is_what_the_formulas_say(bags, negative, shared, sample):
    rng = np.random.default_rng(5)
    dim, rate = 20, 0.3
    sentences = [rng.integers(0, 8, length).tolist() for length in (9, 1, 2, 14)]
    ids, ends = np.concatenate(sentences).astype(np.int32), np.cumsum([len(each) for each in sentences])
    inputs, outputs = padded_rows(8, dim), padded_rows(8, dim)
    inputs[:, :dim], outputs[:, :dim] = rng.normal(0, 0.4, (8, dim)), rng.normal(0, 0.4, (8, dim))
    exact = inputs[:, :dim].astype(np.float64), outputs[:, :dim].astype(np.float64)
    keep, alias, tree = noise.keep_thresholds(COUNTS, sample), noise.alias_of(noise.cumulative(COUNTS)), tree_of(COUNTS)
    given = (tuple(alias), (*tree, tree.longest), 3, negative, bags, shared, np.float32(rate), np.uint64(77))
    before = inputs.copy()
    loss, trained, places = windows.train(ids, ends, 0, 4, inputs, outputs, keep, *given)
    reference(sentences, *exact, keep, alias, tree, 3, negative, bags, shared, float(np.float32(rate)), 77)
    assert np.abs(inputs - before).max() > 0.05
    assert np.abs(inputs[:, :dim] - exact[0]).max() < 2e-5
    assert np.abs(outputs[:, :dim] - exact[1]).max() < 2e-5
    assert not inputs[:, dim:].any()
    assert not outputs[:, dim:].any()
    assert 0 < places <= len(ids)
    assert trained > 0
    assert loss > 0


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_goes_down_the_gradient_of_its_loss(count):
    rng = np.random.default_rng(count)
    dim, size = 12, 1e-6
    inputs, outputs = padded_rows(5, dim), padded_rows(6, dim)
    inputs[:, :dim], outputs[:, :dim] = rng.normal(0, 0.5, (5, dim)), rng.normal(0, 0.5, (6, dim))
    rows, targets = np.array([4, 0, 2]), np.array([5, 1, 3])
    labels = np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    held, result = np.zeros((3, 16), np.float32), np.zeros((3, 8), np.float32)
    h, u = inputs[rows[:count], :dim].astype(np.float64), outputs[targets, :dim].astype(np.float64)

    def slope(given, other, of):
        gradient = np.zeros_like(given)
        for place in np.ndindex(given.shape):
            more, less = given.copy(), given.copy()
            more[place] += size
            less[place] -= size
            gradient[place] = (of(more, other) - of(less, other)) / (2 * size)
        return gradient

    by_h = slope(h, u, lambda h, u: loss_of(h, u, labels[:3]))
    by_u = slope(u, h, lambda u, h: loss_of(h, u, labels[:3]))
    before = inputs.copy(), outputs.copy()
    rate = np.float32(0.01)
    loss = windows.step(inputs, rows, count, outputs, targets, labels, 3, held, np.arange(3), result, rate, True)
    assert loss == pytest.approx(loss_of(h, u, labels[:3]), rel=1e-5)
    assert np.allclose((inputs - before[0])[rows[:count], :dim], -rate * by_h, atol=1e-7)
    assert np.allclose((outputs - before[1])[targets, :dim], -rate * by_u, atol=1e-7)


def test_windows_are_uniform_and_thinning_and_noise_as_often_as_they_should():
    state = np.uint64(99)
    radii = np.zeros(5)
    for _ in range(20_000):
        state = np.uint64(windows.advance(state))
        radii[windows.below(state, np.uint64(5))] += 1
    assert radii.sum() == 20_000
    assert np.abs(radii / 20_000 - 0.2).max() < 0.012  # four standard deviations
    ids = np.repeat(np.arange(8), 4000).astype(np.int32)
    keep = noise.keep_thresholds(COUNTS, 0.05)
    kept = np.empty(len(ids), np.int32)
    count, state = windows.thinned(ids, 0, len(ids), keep, state, kept)
    share = np.bincount(kept[:count], minlength=8) / 4000
    assert np.abs(share - (keep / 2**32)).max() < 0.032
    alias = noise.alias_of(noise.cumulative(COUNTS))
    result = np.zeros(8)
    for _ in range(20_000):
        state = np.uint64(windows.advance(np.uint64(state)))
        result[windows.drawn(state, *alias, np.uint64(8))] += 1
    assert np.abs(result / 20_000 - COUNTS**0.75 / (COUNTS**0.75).sum()).max() < 0.013


def test_a_sentence_longer_than_a_window_can_be_laid_over_is_read_whole():
    longest = windows.LONGEST
    ids = np.zeros(2 * longest + 1, np.int32)
    ids[1::2] = 1
    counts = np.bincount(ids)
    inputs, outputs = padded_rows(2, 4), padded_rows(2, 4)
    inputs[:] = 0.1
    alias = noise.alias_of(noise.cumulative(counts))
    nothing = (np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.uint8), 1)
    keep = noise.keep_thresholds(counts, 0)
    given = (tuple(alias), nothing, 2, 1, False, True, np.float32(0.01), np.uint64(1))
    ends = np.array([len(ids)])
    assert windows.train(ids, ends, 0, 1, inputs, outputs, keep, *given)[2] == 2 * longest  # the last stands alone
