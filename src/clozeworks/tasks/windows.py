"""Long rows of words in windows that overlap."""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """The words begin : end are read; those from own to done, which it has most around, are answered."""

    begin: int
    end: int
    own: int
    done: int


def windows(sizes: np.ndarray, room: int, overlap: int) -> list[Window]:
    """For words of these sizes [words], none above `room`: every word is answered in one window.

    Neighbours share up to `overlap` pieces, and what they share is halved: a word has half of that beside it at least,
    on both sides, but for the ends of the row.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)])
    placed: list[Window] = []
    begin = own = 0
    while own < len(sizes):
        end = int(np.searchsorted(ends, ends[begin] + room, side="right")) - 1
        if end == len(sizes):
            placed.append(Window(begin, end, own, end))
            break
        least = max(ends[end] - overlap, ends[end + 1] - room)  # the next window must have room for one word more
        following = int(np.searchsorted(ends, least))
        done = int(np.searchsorted(ends, (ends[following] + ends[end]) / 2))
        if done > own:
            placed.append(Window(begin, end, own, done))
        begin, own = following, done
    return placed
