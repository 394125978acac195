"""Take units in a given order until a budget of tokens is met."""

import numpy as np

from clozeworks.objectives.mask.units import Units

TOO_LARGE = np.int64(1) << 40


def fit(units: Units, order: np.ndarray, budget: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The units taken and their examples: in order, skipping each unit that is larger than what is left.

    order [examples, places]: the units of each example by their number in it, as `shuffled` gives them. Where not one
    unit is small enough the first of the smallest is taken: a unit is never broken, and no example stays without a
    prediction.
    """
    begin, counts = units.first[:-1, None], units.counts
    most = int(budget.max(initial=0))
    if units.size is None:
        taken = np.arange(most) < budget[:, None]
        return (begin + order[:, :most])[taken], np.repeat(np.arange(len(budget)), budget)
    # A unit has a token or more, so the first that does not fit is among the first `most`.
    size = _sizes(units.size, order[:, :most], begin, counts)
    prefix = size.cumsum(axis=1) <= budget[:, None]
    rows, places = prefix.nonzero()
    left = budget - np.add.reduce(size * prefix, axis=1)
    more = _rest(units, order, left, np.bincount(rows, minlength=len(budget)))
    rows, places = np.concatenate([rows, more[0]]), np.concatenate([places, more[1]])
    return units.first[rows] + order[rows, places], rows


def _rest(units: Units, order: np.ndarray, left: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What still fits behind the first unit that did not. What was too large once stays so: `left` only falls."""
    counts = units.counts
    rows = np.flatnonzero((left > 0) & (taken < counts))
    size = _sizes(units.sizes, order[rows], units.first[rows, None], counts[rows])
    size[np.arange(order.shape[1]) < taken[rows, None]] = TOO_LARGE
    left, empty = left[rows], taken[rows] == 0
    all_rows, all_places = [rows[:0]], [rows[:0]]
    while len(rows):
        each = np.arange(len(rows))
        place = np.argmax(size <= left[:, None], axis=1)
        fits = size[each, place] <= left
        none = np.flatnonzero(empty & ~fits)
        place[none], fits[none] = np.argmin(size[none], axis=1), True
        all_rows.append(rows[fits])
        all_places.append(place[fits])
        left = left - size[each, place]
        size[each, place] = TOO_LARGE
        on = fits & (left > 0)
        rows, size, left, empty = rows[on], size[on], left[on], np.zeros(on.sum(), dtype=bool)
    return np.concatenate(all_rows), np.concatenate(all_places)


def _sizes(sizes: np.ndarray, order: np.ndarray, begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Tokens of the units in order; TOO_LARGE behind the last."""
    behind = np.arange(order.shape[1]) >= counts[:, None]
    at = begin + order
    at[behind] = 0
    size = sizes[at]
    size[behind] = TOO_LARGE
    return size
