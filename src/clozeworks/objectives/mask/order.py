"""A random order of the units of each example, all examples at once."""

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.objectives.mask.units import Units

CELLS = 1 << 14  # random numbers at a time: larger temporaries leave the cache and are mapped anew at every step
PLACE = 24  # bits of a number that name the place it was drawn for; the 40 above them are random
NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)


def shuffled(counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """[examples, most units]: row i is a random order of range(counts[i]); what stands behind it means nothing.

    One random number a unit, sorted within the row with the unit's own place in the low bits: no indirect sort.
    """
    most = int(counts.max(initial=0))
    rows = max(1, CELLS // max(most, 1))
    place = np.arange(most, dtype=np.uint64)
    out = np.empty((len(counts), most), dtype=np.uint64)
    for low in range(0, len(counts), rows):
        block = out[low : low + rows]
        np.bitwise_and(counter_rng.bits(keys[low : low + rows, None], place), ~np.uint64((1 << PLACE) - 1), out=block)
        block |= place
        here = counts[low : low + rows, None]
        if here.min() < most:
            block[place >= here] = NOWHERE
        block.sort(axis=1)
        block &= np.uint64((1 << PLACE) - 1)
    return out.view(np.int64)


def in_turns(order: np.ndarray, units: Units, marked: np.ndarray, share: float, keys: np.ndarray) -> np.ndarray:
    """The same order within the marked units and within the others, but at each turn a coin says which kind comes next.

    order [examples, places] as `shuffled` gives it; marked [units]. Where one kind is used up the other follows.
    """
    place = np.arange(order.shape[1])
    at = units.first[:-1, None] + order
    behind = place >= units.counts[:, None]
    at[behind] = 0
    mine = marked[at] & ~behind
    heads = counter_rng.uniform(keys[:, None], place) < share
    # Its rank among its kind is the number of the coin that a unit waits for; if there are too few, it comes last.
    coins = np.argsort(~heads, axis=1, kind="stable")  # heads, then tails
    many = heads.sum(axis=1, keepdims=True)
    rank = np.where(mine, mine.cumsum(axis=1), (~mine).cumsum(axis=1)) - 1
    late = np.where(mine, rank >= many, rank >= len(place) - many)
    turn = np.take_along_axis(coins, np.where(late, 0, np.where(mine, rank, many + rank)), axis=1)
    turn = np.where(behind, 3 * len(place), np.where(late, len(place) + rank, turn))
    return np.take_along_axis(order, np.argsort(turn, axis=1, kind="stable"), axis=1)


def raced(first: np.ndarray, speed: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Like `shuffled`, for units that come first the more often the greater their `speed` [units] is.

    Unit u of example i, one of first[i] : first[i + 1], arrives after an exponentially distributed time of mean
    1 / speed[u]. The first to arrive is u with a probability in proportion to its speed, and so is each next among
    those that are left: a draw without replacement, from one random number a unit (Efraimidis & Spirakis 2006).
    """
    counts = first[1:] - first[:-1]
    most = int(counts.max(initial=0))
    rows = max(1, CELLS // max(most, 1))
    place = np.arange(most)
    out = np.empty((len(counts), most), dtype=np.int64)
    for low in range(0, len(counts), rows):
        there = place < counts[low : low + rows, None]
        arrival = np.full(there.shape, np.inf)
        drawn = counter_rng.uniform(keys[low : low + rows, None], place)
        arrival[there] = -np.log1p(-drawn[there]) / speed[first[low] : first[min(low + rows, len(counts))]]
        out[low : low + rows] = arrival.argsort(axis=1)
    return out
