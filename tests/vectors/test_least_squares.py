"""Vectors fitted to counts: every number as a plain loop has it, and byte for byte the same twice."""

import itertools
import math

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors import least_squares as module
from clozeworks.vectors.cooccur import Pairs, count
from clozeworks.vectors.least_squares import CLIP, Fit, least_squares, vectors_of
from clozeworks.vectors.words import gathered

pytest.importorskip("numba")


def some_pairs(both: bool, vocab: int = 12, n: int = 40) -> Pairs:
    rng = np.random.default_rng(0)
    every = [(i, j) for i, j in itertools.product(range(vocab), repeat=2) if not both or i <= j]
    chosen = [every[k] for k in rng.permutation(len(every))[:n]]
    values = np.exp(rng.uniform(-3, 7, n)).astype(np.float32)  # below and above x_max
    first, second = np.array(chosen, np.int32).T
    return Pairs(first.copy(), second.copy(), values, both, vocab)


def plain(fit: Fit, pairs: Pairs, rate: float, x_max: float, alpha: float) -> float:
    """The same in the plainest Python, in place; the mean loss."""
    losses = []

    def one(i: int, j: int, x: float) -> None:
        w, c, gw, gc = (rows[k] for rows, k in zip(sides, (i, j, i, j), strict=True))
        off = float(w[:-1] @ c[:-1]) + w[-1] + c[-1] - math.log(x)
        step = min(1.0, (x / x_max) ** alpha) * off
        losses.append(0.5 * step * off)
        toward_w = np.append(np.clip(step * c[:-1], -CLIP, CLIP) * rate, step)
        toward_c = np.append(np.clip(step * w[:-1], -CLIP, CLIP) * rate, step)
        w -= toward_w / np.sqrt(gw)
        c -= toward_c / np.sqrt(gc)
        gw += toward_w**2
        gc += toward_c**2

    sides = (fit.words, fit.contexts, fit.word_squares, fit.context_squares)
    for i, j, x in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.values.tolist(), strict=True):
        one(i, j, x)
        if pairs.both and i != j:
            one(j, i, x)
    return float(np.mean(losses))


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 1e-11), (np.float32, 1e-5)])
def test_every_number_is_that_of_a_plain_loop(both, dtype, near):
    pairs = some_pairs(both)
    ours, truth = Fit.begin(12, 7, 3, dtype), Fit.begin(12, 7, 3, dtype)
    for name in ("words", "contexts", "word_squares", "context_squares"):
        setattr(truth, name, getattr(truth, name).astype(np.float64))
    for _ in range(3):
        loss = ours.epoch(pairs, 0.05, 10.0, 0.75)
        assert loss == pytest.approx(plain(truth, pairs, 0.05, 10.0, 0.75), rel=near)
    for name in ("words", "contexts", "word_squares", "context_squares"):
        np.testing.assert_allclose(getattr(ours, name), getattr(truth, name), rtol=10 * near, atol=near)


def test_a_steep_gradient_is_cut():
    pairs = Pairs(np.int32([0]), np.int32([1]), np.float32([1e30]), False, 2)
    ours, truth = (Fit.begin(2, 3, 0, np.float64) for _ in range(2))
    ours.words[:] = truth.words[:] = 50.0
    ours.epoch(pairs, 0.05)
    plain(truth, pairs, 0.05, 100.0, 0.75)
    np.testing.assert_allclose(ours.contexts, truth.contexts, rtol=1e-12)
    assert abs(ours.words - 50).max() < 3000  # the bias, which is not


def test_the_slope_is_that_of_the_loss():
    """A tiny step from squares of 1 goes against the gradient of J / 2, whose factor 2 the factor 1/2 takes."""
    pairs, dim, small = some_pairs(False, n=1), 5, 1e-6
    i, j, x = int(pairs.first[0]), int(pairs.second[0]), float(pairs.values[0])
    fit = Fit.begin(12, dim, 1, np.float64)
    before = fit.words[i, :dim].copy(), fit.contexts[j].copy(), float(fit.words[i, dim])

    def loss(w: np.ndarray) -> float:
        off = w @ before[1][:dim] + before[2] + before[1][dim] - math.log(x)
        return 0.5 * min(1.0, (x / 100) ** 0.75) * off**2

    slope = [(loss(before[0] + d) - loss(before[0] - d)) / 2e-5 for d in np.eye(dim) * 1e-5]
    fit.epoch(pairs, small)
    np.testing.assert_allclose((before[0] - fit.words[i, :dim]) / small, slope, rtol=1e-5)


def test_products_tell_the_counts():
    """With as many dimensions as there are words the loss goes to nothing."""
    rng = np.random.default_rng(0)
    first, second = (side.astype(np.int32) for side in np.triu_indices(8))
    pairs = Pairs(first, second, np.exp(rng.uniform(0, 4, 36)).astype(np.float32), True, 8)
    fit, order = Fit.begin(8, 12, 0, np.float64), np.random.default_rng(0)
    losses = [fit.epoch(pairs, 0.1, 1.0, 0.75, order=order) for _ in range(3000)]
    assert losses[-1] < 1e-4
    predicted = fit.words[:, :-1] @ fit.contexts[:, :-1].T + fit.words[:, -1:] + fit.contexts[:, -1]
    np.testing.assert_allclose(predicted[first, second], np.log(pairs.values), atol=0.05)


def planted(seed: int = 0) -> list[list[str]]:
    """Sentences of four words of one of two kinds, now and then with one of the other."""
    rng = np.random.default_rng(seed)
    kinds = [["cat", "dog", "cow", "eats", "sleeps", "runs"], ["car", "bus", "train", "stops", "drives", "honks"]]
    chosen = [rng.integers(2) ^ (rng.random(4) < 0.1) for _ in range(1500)]
    return [[str(rng.choice(kinds[kind])) for kind in sentence] for sentence in chosen]


def test_words_of_a_kind_come_near():
    heard: list[tuple[int, float]] = []
    stages: set[str] = set()
    vectors = least_squares(planted(), dim=8, epochs=15, x_max=10.0, workers=2,
                            progress=lambda stage, *_: stages.add(stage),
                            on_epoch=lambda epoch, loss: heard.append((epoch, loss)))  # fmt: skip
    assert {word for word, _ in vectors.most_similar("cat", top=5)} == {"dog", "cow", "eats", "sleeps", "runs"}
    assert [epoch for epoch, _ in heard] == list(range(1, 16))
    assert heard[-1][1] < 0.5 * heard[0][1]
    assert vectors.about["losses"] == [loss for _, loss in heard]
    assert {"pairs", "fit"} <= stages
    assert vectors.words[-1] == "<unk>"
    assert len(vectors) == 13


def test_one_thread_gives_the_same_bytes(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 20)
    one, again = (least_squares(planted(), dim=8, epochs=3, deterministic=True, seed=5) for _ in range(2))
    assert one.table.tobytes() == again.table.tobytes()
    assert one.words == again.words
    other = least_squares(planted(), dim=8, epochs=3, deterministic=True, seed=6)
    assert one.table.tobytes() != other.table.tobytes()


def test_what_is_kept():
    words = gathered(planted())
    fit = Fit.begin(len(words), 4, 0)
    both, alone = vectors_of(fit, words, "sum", True, {}), vectors_of(fit, words, "words", False, {})
    np.testing.assert_array_equal(alone.table, fit.words[:, :4])
    np.testing.assert_array_equal(alone.output, fit.contexts[:, :4])
    np.testing.assert_array_equal(both.table[:-1], fit.words[:, :4] + fit.contexts[:, :4])
    np.testing.assert_allclose(both["<unk>"], both.table[:-1].mean(0), atol=1e-7)  # fewer than a hundred words
    assert both.output is None
    assert both.counts[-1] == 0
    assert "<unk>" not in alone


def test_an_epoch_meets_every_pair_once(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    words = gathered(planted())
    pairs = count(words, 3)
    met: list[tuple[int, int]] = []
    import clozeworks.vectors.kernels.pairs as kernels

    def watch(first, second, *_):
        met.extend(zip(first.tolist(), second.tolist(), strict=True))
        return 0.0

    monkeypatch.setattr(kernels, "fit_pairs", watch)
    Fit.begin(len(words), 2, 0).epoch(pairs, workers=3, order=np.random.default_rng(0))
    every = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert sorted(met) == sorted(every)
    assert met != every


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dim": 0}, "dim: 0; a number above 0"),
        ({"x_max": 0.0}, "x_max: 0.0"),
        ({"rate": float("nan")}, "rate: nan"),
        ({"min_count": 10**6}, "none of 12 words comes 1,000,000 times"),
    ],
)
def test_mistakes_are_reported(given, message):
    with pytest.raises(InputError, match=message):
        least_squares(planted(), **given)


def test_one_word_is_refused():
    with pytest.raises(InputError, match="text: one word, a; a vector tells words apart"):
        least_squares([["a", "a"]] * 9)


def test_a_wild_rate_is_reported():
    with pytest.raises(InputError, match="rate: 1e\\+30; the loss is no longer a number in epoch"):
        least_squares(planted(), dim=4, rate=1e30)
