"""A Huffman tree over words: frequent words near the root, so that the way to a word is short on average.

Each word is a leaf; the inner nodes have vectors, and the bits of the way say left or right. Where counts are equal the
tree is one of several that are as good; this one is made by the steps of Python's heapq, which others use too.
"""

import heapq
from typing import NamedTuple

import numpy as np

from clozeworks.nn.kernels.compiled import compiled


class Tree(NamedTuple):
    """The way to word n from the root: `points` and `bits` from starts[n] to starts[n + 1]."""

    starts: np.ndarray  # int64 [V + 1]
    points: np.ndarray  # int32: inner nodes, 0 to V - 2
    bits: np.ndarray  # uint8: 1 for the second child, the more frequent one

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts).max())


class Node:
    """A leaf or an inner node, which counts as much as what is below it."""

    __slots__ = ("count", "number")

    def __init__(self, count: int, number: int):
        self.count, self.number = count, number

    def __lt__(self, other: "Node") -> bool:
        return self.count < other.count


def tree_of(counts: np.ndarray) -> Tree:
    """The tree of two or more words."""
    words = len(counts)
    heap = [Node(count, number) for number, count in enumerate(counts.tolist())]
    heapq.heapify(heap)
    parents, bits = [0] * (2 * words - 1), bytearray(2 * words - 1)
    for number in range(words, 2 * words - 1):
        first, second = heapq.heappop(heap), heapq.heappop(heap)
        parents[first.number] = parents[second.number] = number
        bits[second.number] = 1
        heapq.heappush(heap, Node(first.count + second.count, number))
    return Tree(*_ways(np.array(parents), np.frombuffer(bits, np.uint8), words))


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
