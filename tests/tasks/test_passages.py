"""Windows over long passages, characters as tokens and back, best spans."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.tasks.passages import best_spans, tokens_of, trimmed, windows


@given(st.integers(0, 300), st.integers(1, 60), st.data())
def test_any_stretch_of_the_overlap_and_one_is_whole_in_a_window(length: int, room: int, data):
    overlap = data.draw(st.integers(0, room - 1))
    cut = windows(length, room, overlap)
    assert cut[0][0] == 0
    assert cut[-1][1] == length
    assert all(0 < end - begin <= room for begin, end in cut) or length == 0
    for (begin, end), (later, _) in itertools.pairwise(cut):
        assert end - later == overlap
        assert begin < later
        assert end < length  # none is needless
    for begin in range(length):
        last = min(begin + overlap, length - 1)
        assert any(low <= begin and last < high for low, high in cut)


def test_a_passage_that_fits_is_one_window():
    assert windows(10, 10, 4) == [(0, 10)]
    assert windows(11, 10, 4) == [(0, 10), (6, 11)]
    assert windows(0, 10, 4) == [(0, 0)]


def test_tokens_that_have_some_of_the_characters():
    offsets = np.array([[0, 0], [0, 3], [3, 7], [8, 9], [8, 9], [10, 12]])
    assert tokens_of(offsets, 0, 3) == (1, 1)  # the first has none
    assert tokens_of(offsets, 4, 9) == (2, 4)  # one character of two tokens
    assert tokens_of(offsets, 11, 12) == (5, 5)
    assert tokens_of(offsets, 7, 8) is None
    assert tokens_of(offsets[:0], 0, 3) is None


def test_white_space_goes_and_marks_come():
    assert trimmed("a  b ", 1, 5) == (3, 4)
    assert trimmed("   ", 0, 3) == (3, 3)
    assert trimmed("cafe\u0301 e\u0301", 0, 4) == (0, 5)
    assert trimmed("\u2764\ufe0f.", 0, 1) == (0, 2)


@given(st.integers(0, 12), st.integers(1, 15), st.integers(1, 40), st.integers(0, 1000))
def test_best_spans_are_the_best_of_all(length: int, longest: int, count: int, seed: int):
    draw = np.random.default_rng(seed)
    starts, ends = draw.integers(-3, 4, (2, length)).astype(np.float32)
    pairs = [(i, j) for i in range(length) for j in range(i, min(i + longest, length))]
    wanted = sorted(((float(starts[i] + ends[j]), i, j) for i, j in pairs), key=lambda each: -each[0])
    assert best_spans(starts, ends, longest, count) == wanted[:count]
