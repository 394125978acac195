"""Pairs of words near each other: the sums of a plain dictionary, however little memory there is."""

import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors import cooccur
from clozeworks.vectors.cooccur import Pairs, count, merged
from clozeworks.vectors.words import Words, gathered

pytest.importorskip("numba")


def text(seed: int = 0, sentences: int = 300, vocab: int = 200) -> Words:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, sentences)
    return gathered([[f"w{k}" for k in np.minimum(rng.zipf(1.2, n), vocab)] for n in lengths], 2)


def plain(words: Words, window: int, both: bool, even: bool = False) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for sentence in words.sentences():
        for at, word in enumerate(sentence):
            for before in range(max(at - window, 0), at):
                weight = 1.0 if even else 1 / (at - before)
                counts[sentence[before], word] += weight
                if both:
                    counts[word, sentence[before]] += weight
    return counts


def by_words(pairs: Pairs, words: Words) -> dict[tuple[str, str], float]:
    counts = {}
    for i, j, value in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.values.tolist(), strict=True):
        assert (words.words[i], words.words[j]) not in counts
        counts[words.words[i], words.words[j]] = value
        if pairs.both:
            assert i <= j
            counts[words.words[j], words.words[i]] = value
    return counts


def same(counts: dict[tuple[str, str], float], truth: dict[tuple[str, str], float]) -> None:
    assert counts.keys() == truth.keys()
    np.testing.assert_allclose([counts[pair] for pair in truth], list(truth.values()), rtol=1e-6)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("window", [1, 4, 15])
def test_sums_are_those_of_a_dictionary(both, window):
    words = text()
    same(by_words(count(words, window, both), words), plain(words, window, both))


def test_every_pair_may_weigh_the_same():
    words = text()
    same(by_words(count(words, 5, even=True), words), plain(words, 5, True, even=True))


@pytest.mark.parametrize("both", [True, False])
def test_little_memory_changes_nothing(both, tmp_path, monkeypatch):
    """Few cells and a small table, so that runs are written, merged in small pieces and shuffled in several heaps."""
    words = text(1, 1000, 5000)
    monkeypatch.setattr(cooccur, "LEAST", 1)
    monkeypatch.setattr(cooccur, "BLOCK", 3000)
    runs: list[int] = []
    within = cooccur._emptied
    monkeypatch.setattr(cooccur, "_emptied", lambda *given: (runs.append(1), within(*given))[1])
    pairs = count(words, 10, both, memory=1 << 17, folder=tmp_path)
    assert len(runs) > 5
    same(by_words(pairs, words), plain(words, 10, both))
    assert not list(tmp_path.iterdir())


def test_a_word_may_be_met_where_the_table_is_full(monkeypatch):
    """One sentence without an end."""
    rng = np.random.default_rng(0)
    words = gathered([[f"w{k}" for k in rng.integers(0, 400, 5000)]])
    monkeypatch.setattr(cooccur, "LEAST", 1)
    same(by_words(count(words, 7, memory=1 << 17), words), plain(words, 7, True))


def test_words_that_did_not_stay_take_no_place():
    words = gathered([["a", "rare", "b"], ["a", "b"], ["b"]], 2)
    assert by_words(count(words, 1), words) == {("a", "b"): 2.0, ("b", "a"): 2.0}


def test_a_word_beside_itself_counts_both_ways():
    words = gathered([["a", "a", "b"]])
    assert by_words(count(words, 2), words) == pytest.approx({("a", "a"): 2, ("a", "b"): 1.5, ("b", "a"): 1.5})
    assert by_words(count(words, 2, both=False), words) == pytest.approx({("a", "a"): 1, ("a", "b"): 1.5})


def test_cells_are_for_the_frequent():
    for both in (True, False):
        starts, widths, cells = cooccur._cells(50, both, 300)
        pairs = {(a, b) for a in range(50) for b in range(a if both else 0, int(widths[a]))}
        assert {int(starts[a]) + b for a, b in pairs} == set(range(cells))
        assert len(pairs) == cells
        assert 200 < cells <= 300
        rest = {(a, b) for a in range(50) for b in range(a if both else 0, 50)} - pairs
        assert max((a + 1) * (b + 1) for a, b in pairs) <= min((a + 1) * (b + 1) for a, b in rest)
    assert cooccur._cells(50, True, 10**6)[2] == 50 * 51 // 2
    assert cooccur._cells(50, False, 10**6)[2] == 50 * 50


def test_runs_are_merged_whatever_the_room(monkeypatch):
    monkeypatch.setattr(cooccur, "PIECE", 1)
    rng = np.random.default_rng(0)
    truth: dict[int, float] = defaultdict(float)
    runs = []
    for size in (0, 1, 50, 400):
        keys = np.sort(rng.choice(600, size, replace=False))
        values = rng.random(size)
        runs.append((keys, values))
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            truth[key] += value
    for room in (1, 7, 100, 10**6):
        parts = list(merged(runs, room))
        keys, values = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        assert keys.tolist() == sorted(truth)
        np.testing.assert_allclose(values, [truth[key] for key in sorted(truth)])


def test_order_is_random_and_the_seeds(monkeypatch):
    monkeypatch.setattr(cooccur, "BLOCK", 200)
    words = text()
    one, again, other = count(words, seed=0), count(words, seed=0), count(words, seed=1)
    assert one.first.tolist() == again.first.tolist()
    assert one.first.tolist() != other.first.tolist()
    places = np.arange(len(one))
    for column in (one.first, one.second, one.values):
        assert abs(np.corrcoef(places, np.argsort(np.argsort(column)))[0, 1]) < 0.1


def test_mistakes_are_reported():
    words = text()
    with pytest.raises(InputError, match="window: 0; 1 or more"):
        count(words, 0)
    with pytest.raises(InputError, match="memory: 5"):
        count(words, memory=5)
    with pytest.raises(InputError, match="no two words stand in one sentence"):
        count(gathered([["a"], ["b"]]))


def test_a_wide_window_and_little_memory():
    words = text(sentences=20)
    same(by_words(count(words, 5000, memory=cooccur.LEAST), words), plain(words, 5000, True))


def test_no_more_memory_is_held_than_was_given(tmp_path):
    rng = np.random.default_rng(0)
    words = gathered([str(word) for word in row] for row in rng.zipf(1.15, (4000, 60)).clip(max=20_000).tolist())
    count(words, 2)  # what is compiled is not counted
    memory = 12 << 20
    tracemalloc.start()
    pairs = count(words, 15, memory=memory, folder=tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(pairs) * 16 > memory / 2
    assert peak < memory
