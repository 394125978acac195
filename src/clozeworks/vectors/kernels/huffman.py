"""A Huffman tree over words: frequent words near the root, so that the way to a word is short on average.

Each word is a leaf; the inner nodes have vectors, and the bits of the way say left or right. Where counts are equal the
tree is one of several that are as good; this one is made by the steps of Python's heapq, which others use too.
"""

from typing import NamedTuple

import numpy as np

from clozeworks.vectors.kernels.compiled import compiled


class Tree(NamedTuple):
    """The way to word n from the root: `points` and `bits` from starts[n] to starts[n + 1]."""

    starts: np.ndarray  # int64 [V + 1]
    points: np.ndarray  # int32: inner nodes, 0 to V - 2
    bits: np.ndarray  # uint8: 1 for the second child, the more frequent one

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts).max())


def tree_of(counts: np.ndarray) -> Tree:
    """The tree of two or more words."""
    parents, bits = _parents(counts.astype(np.int64))
    return Tree(*_ways(parents, bits, len(counts)))


@compiled
def _sink_from(counts: np.ndarray, nodes: np.ndarray, first: int, at: int) -> None:
    """The entry at `at` rises towards `first` past those that are larger."""
    count, node = counts[at], nodes[at]
    while at > first:
        above = (at - 1) >> 1
        if not count < counts[above]:
            break
        counts[at], nodes[at] = counts[above], nodes[above]
        at = above
    counts[at], nodes[at] = count, node


@compiled
def _settle(counts: np.ndarray, nodes: np.ndarray, at: int, size: int) -> None:
    """The entry at `at` goes down to a leaf, smaller children moving up, and rises again to its place."""
    first, count, node = at, counts[at], nodes[at]
    child = 2 * at + 1
    while child < size:
        if child + 1 < size and not counts[child] < counts[child + 1]:
            child += 1
        counts[at], nodes[at] = counts[child], nodes[child]
        at = child
        child = 2 * at + 1
    counts[at], nodes[at] = count, node
    _sink_from(counts, nodes, first, at)


@compiled
def _pop(counts: np.ndarray, nodes: np.ndarray, size: int) -> tuple[int, int]:
    """The smallest entry of a heap of `size`; the heap is one smaller then."""
    count, node = counts[0], nodes[0]
    counts[0], nodes[0] = counts[size - 1], nodes[size - 1]
    if size > 1:
        _settle(counts, nodes, 0, size - 1)
    return count, node


@compiled
def _parents(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each node but the root its parent, and whether it is the second child."""
    words = len(given)
    counts, nodes = given.copy(), np.arange(words)
    parents, bits = np.zeros(2 * words - 1, np.int64), np.zeros(2 * words - 1, np.uint8)
    for at in range(words // 2 - 1, -1, -1):
        _settle(counts, nodes, at, words)
    size = words
    for made in range(words, 2 * words - 1):
        one, first = _pop(counts, nodes, size)
        two, second = _pop(counts, nodes, size - 1)
        size -= 1
        parents[first] = parents[second] = made
        bits[second] = 1
        counts[size - 1], nodes[size - 1] = one + two, made
        _sink_from(counts, nodes, 0, size - 1)
    return parents, bits


@compiled
def _ways(parents: np.ndarray, bits: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    root = 2 * words - 2
    depth = np.zeros(2 * words - 1, np.int64)
    for node in range(root - 1, -1, -1):
        depth[node] = depth[parents[node]] + 1
    starts = np.zeros(words + 1, np.int64)
    for word in range(words):
        starts[word + 1] = starts[word] + depth[word]
    points, way = np.empty(starts[words], np.int32), np.empty(starts[words], np.uint8)
    for word in range(words):
        node, at = word, starts[word + 1]
        while node != root:
            at -= 1
            way[at] = bits[node]
            node = parents[node]
            points[at] = node - words
    return starts, points, way
