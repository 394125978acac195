"""Which words are drawn and which are passed over: noise by count^0.75, and the thinning of frequent words.

Paper: Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality". A word is
kept with probability (sqrt(c / tN) + 1) tN / c for its count c among N, as the authors' program has it; the paper's own
formula is 1 - sqrt(tN / c).
"""

from typing import NamedTuple

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.nn.kernels.compiled import compiled

DOMAIN = 2**31 - 1  # the last entry of the cumulative table
FULL = 2**32 - 1


def cumulative(counts: np.ndarray, exponent: float = 0.75) -> np.ndarray:
    """uint32 [V]: the shares count^exponent summed up, the last one DOMAIN."""
    sums = np.cumsum(counts.astype(np.float64) ** exponent)
    return np.rint(sums / sums[-1] * DOMAIN).astype(np.uint32)


def keep_thresholds(counts: np.ndarray, sample: float) -> np.ndarray:
    """uint32 [V]: a word stays when a number below 2^32 is not above its threshold; 0 as `sample` keeps all."""
    if not 0 <= sample < 1:
        raise InputError("sample", sample, "a share from 0, which thins nothing, to below 1 is needed", "1e-3 is usual")
    if sample == 0:
        return np.full(len(counts), FULL, np.uint32)
    border = sample * counts.sum()
    share = (np.sqrt(counts / border) + 1) * (border / counts)
    return (np.minimum(share, 1.0) * FULL).astype(np.uint32)


class Alias(NamedTuple):
    """Walker's table: one look draws a word. Slot n gives n below its threshold, its alias otherwise."""

    thresholds: np.ndarray  # uint32 [V]
    aliases: np.ndarray  # int32 [V]


def alias_of(table: np.ndarray) -> Alias:
    """Draws with the shares of a cumulative table, each to within 2^-32."""
    shares = np.diff(table.astype(np.float64), prepend=0.0)
    return Alias(*_alias(shares * (len(shares) / shares.sum())))


@compiled
def _alias(left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`left` is what each slot has of its word, 1 on average; it is used up."""
    size = len(left)
    thresholds, aliases = np.full(size, 4294967295, np.uint32), np.arange(size).astype(np.int32)
    poor, rich = np.empty(size, np.int64), np.empty(size, np.int64)
    poors = riches = 0
    for slot in range(size):
        if left[slot] < 1.0:
            poor[poors] = slot
            poors += 1
        else:
            rich[riches] = slot
            riches += 1
    while poors and riches:
        poors -= 1
        here, giver = poor[poors], rich[riches - 1]
        thresholds[here] = np.uint32(left[here] * 4294967295.0)
        aliases[here] = giver
        left[giver] -= 1.0 - left[here]
        if left[giver] < 1.0:
            riches -= 1
            poor[poors] = giver
            poors += 1
    return thresholds, aliases
