"""Long rows in windows: every word is answered once, with words around it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.tasks.windows import Window, windows


@given(st.data())
def test_every_word_is_answered_once_and_has_words_beside_it(data: st.DataObject):
    room = data.draw(st.integers(1, 40))
    sizes = np.array(data.draw(st.lists(st.integers(1, room), max_size=60)), np.int64)
    overlap = data.draw(st.integers(0, room // 2))
    cut = windows(sizes, room, overlap)
    assert [word for each in cut for word in range(each.own, each.done)] == list(range(len(sizes)))
    longest = sizes.max(initial=0)
    for each in cut:
        assert each.begin <= each.own < each.done <= each.end
        assert sizes[each.begin : each.end].sum() <= room
        if longest <= room - overlap:  # words that are no longer than what two windows do not share
            for edge, inside in ((0, slice(each.begin, each.own)), (len(sizes), slice(each.done, each.end))):
                at_edge = edge in (each.begin, each.end)
                assert at_edge or sizes[inside].sum() >= overlap / 2 - 1.5 * longest


def test_a_row_that_fits_is_one_window():
    assert windows(np.array([3, 4, 1]), 8, 4) == [Window(0, 3, 0, 3)]
    assert windows(np.zeros(0, np.int64), 8, 4) == []


def test_what_two_windows_share_is_halved():
    assert windows(np.ones(14, np.int64), 10, 4) == [Window(0, 10, 0, 8), Window(6, 14, 8, 14)]
