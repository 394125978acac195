"""Long passages in windows, characters as tokens and back, and the best spans of tokens."""

import unicodedata

import numpy as np


def windows(length: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """[begin, end) of windows of `room` over so many tokens, each with the last `overlap` of the one before it.

    A stretch of at most overlap + 1 tokens is whole in one of them, wherever it lies.
    """
    step = room - overlap
    more = -(-max(length - room, 0) // step)
    return [(begin, min(begin + room, length)) for begin in range(0, more * step + 1, step)]


def tokens_of(offsets: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that have some of the characters begin : end; None where none has."""
    inside = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end) & (offsets[:, 1] > offsets[:, 0]))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """The characters of some tokens as people would mark them.

    Without the white space that some tokenizers count to the word behind it, and with the marks that combine with the
    last letter, which others drop.
    """
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    while begin < end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return begin, end


def best_spans(starts: np.ndarray, ends: np.ndarray, longest: int, count: int) -> list[tuple[float, int, int]]:
    """The highest starts[i] + ends[j], i <= j < i + longest, with i and j; the highest first, then the earlier."""
    reach = min(longest, len(starts))
    if not reach:
        return []
    padded = np.concatenate([ends.astype(np.float64), np.full(reach - 1, -np.inf)])
    totals = (starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, reach)).ravel()
    count = min(count, int(np.isfinite(totals).sum()))
    lowest = np.partition(totals, len(totals) - count)[len(totals) - count] if count else np.inf
    chosen = np.flatnonzero(totals >= lowest)
    chosen = chosen[np.argsort(-totals[chosen], kind="stable")][:count]
    return [(float(totals[at]), int(at // reach), int(at // reach + at % reach)) for at in chosen]
