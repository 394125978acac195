"""Random numbers for data as pure functions of a key: no state, no order, any number at once.

The generator is SplitMix64 used as a counter: bits(key, n) = finalise(key + n * golden). One example's draws
depend on its own key alone, so they are the same for every batch size, worker count and resume.
"""

import zlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ROUNDS = ((np.uint64(30), FIRST), (np.uint64(27), SECOND), (np.uint64(31), None))  # shift, and what to multiply by


def finalise(bits: np.ndarray) -> np.ndarray:
    for shift, factor in ROUNDS:
        bits = bits ^ (bits >> shift)
        bits = bits if factor is None else bits * factor
    return bits


def fold(key: int | np.ndarray, *numbers: int | str | np.ndarray) -> np.ndarray:
    """A new key from a key and numbers (arrays give one key an element; words name a site)."""
    keys = _unsigned(key)
    with np.errstate(over="ignore"):
        for number in numbers:
            number = zlib.crc32(number.encode()) if isinstance(number, str) else number
            keys = finalise(keys * GOLDEN + finalise(_unsigned(number) + GOLDEN))
    return keys


def bits(keys: np.ndarray, counter: np.ndarray | int = 0) -> np.ndarray:
    """64 random bits for each key and counter."""
    with np.errstate(over="ignore"):
        return finalise(keys + (_unsigned(counter) + np.uint64(1)) * GOLDEN)


def uniform(keys: np.ndarray, counter: np.ndarray | int = 0) -> np.ndarray:
    """float64 in [0, 1)."""
    return (bits(keys, counter) >> np.uint64(11)) * 2.0**-53


def below(limit: np.ndarray | int, keys: np.ndarray, counter: np.ndarray | int = 0) -> np.ndarray:
    """Integers in [0, limit), limit < 2**32."""
    high = bits(keys, counter) >> np.uint64(32)
    return ((high * _unsigned(limit)) >> np.uint64(32)).astype(np.int64)


def permutation(size: int, key: np.ndarray | int) -> np.ndarray:
    """A random order of range(size)."""
    return np.argsort(bits(_unsigned(key), np.arange(size)), kind="stable")


def _unsigned(value: int | np.ndarray) -> np.ndarray:
    if isinstance(value, int):
        return np.asarray(value & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    return np.asarray(value).astype(np.uint64)
