"""Exact nearest rows by cosine: blocked matrix products and a partial sort, nothing approximate."""

import numpy as np

ROOM = 1 << 24  # numbers of a block of scores: 64 MB


def norms_of(table: np.ndarray) -> np.ndarray:
    """|row| of each row [n]; a row of zeros has 1, so that its cosines are 0."""
    squares = np.empty(len(table), np.float32)
    step = max(ROOM // max(table.shape[1], 1), 1)
    for begin in range(0, len(table), step):
        block = table[begin : begin + step]
        squares[begin : begin + step] = np.einsum("ij,ij->i", block, block)
    norms = np.sqrt(squares)
    norms[norms == 0] = 1
    return norms


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float32."""
    vectors = np.atleast_2d(np.asarray(vectors, np.float32))
    return vectors / norms_of(vectors)[:, None]


def cosines(table: np.ndarray, norms: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """queries [m, D] of length 1 -> [m, n]."""
    return queries @ table.T / norms


def best(scores: np.ndarray, top: int) -> np.ndarray:
    """Columns of the `top` largest of each row [m, n] -> [m, top], the largest first, of equal ones the earlier."""
    top = min(top, scores.shape[1])
    columns = np.empty((len(scores), top), np.int64)
    for row, values in enumerate(scores):
        least = values[np.argpartition(values, len(values) - top)[len(values) - top]]
        above = np.flatnonzero(values > least)
        chosen = np.concatenate([above, np.flatnonzero(values == least)[: top - len(above)]])
        columns[row] = chosen[np.lexsort((chosen, -values[chosen]))]
    return columns


def nearest(table: np.ndarray, norms: np.ndarray, queries: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the table nearest to each query [m, D]: their numbers and cosines, both [m, top], best first."""
    queries = unit(queries)
    top = min(top, len(table))
    ids, scores = np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.float32)
    step = max(ROOM // max(len(table), 1), 1)
    for begin in range(0, len(queries), step):
        block = cosines(table, norms, queries[begin : begin + step])
        here = ids[begin : begin + step] = best(block, top)
        scores[begin : begin + step] = np.take_along_axis(block, here, 1)
    return ids, scores
