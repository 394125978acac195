"""Sums over rows, as the kernels of word vectors need them: several rows in one pass, so that each is loaded once.

Rows are float32, padded with zeros to whole vectors of the processor. A group is m inputs against t targets:
x[a, k] = input_a . target_k, and the gradients of a loss of x are sums of rows once more.
"""

import numpy as np

from clozeworks.nn.kernels.compiled import compiled

PAD = 16  # numbers: 64 bytes, a line of the cache


def padded_rows(rows: int, dim: int) -> np.ndarray:
    """Zeros, float32 [rows, dim rounded up to PAD], each row at the beginning of a line of the cache."""
    width = -(-dim // PAD) * PAD
    room = np.zeros(rows * width + PAD, np.float32)
    skip = -(room.ctypes.data // 4) % PAD
    return room[skip : skip + rows * width].reshape(rows, width)


def unpadded(table: np.ndarray, dim: int) -> np.ndarray:
    """The first `dim` numbers of each row, moved together where they are; `table` is used up."""
    rows, width = table.shape
    flat = table.reshape(-1)
    step = max(1, (1 << 22) // width)
    for begin in range(0, rows, step):
        some = table[begin : begin + step, :dim].copy()
        flat[begin * dim : begin * dim + some.size] = some.reshape(-1)
    return flat[: rows * dim].reshape(rows, dim)


@compiled
def products(inputs, row, targets, rows, count, scores, at, width):
    """scores[at, k] = inputs[row] . targets[rows[k]], for the first `count` rows."""
    k = 0
    while k + 4 <= count:
        e, f, g, h = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        a = b = c = d = np.float32(0)
        for n in range(width):
            x = inputs[row, n]
            a += x * targets[e, n]
            b += x * targets[f, n]
            c += x * targets[g, n]
            d += x * targets[h, n]
        scores[at, k], scores[at, k + 1], scores[at, k + 2], scores[at, k + 3] = a, b, c, d
        k += 4
    while k + 2 <= count:
        e, f = rows[k], rows[k + 1]
        a = b = np.float32(0)
        for n in range(width):
            x = inputs[row, n]
            a += x * targets[e, n]
            b += x * targets[f, n]
        scores[at, k], scores[at, k + 1] = a, b
        k += 2
    if k < count:
        e = rows[k]
        a = np.float32(0)
        for n in range(width):
            a += inputs[row, n] * targets[e, n]
        scores[at, k] = a


@compiled
def add_rows(table, row, source, rows, count, weights, width):
    """table[row] += sum over k of weights[k] source[rows[k]]; the two are different tables."""
    k = 0
    while k + 4 <= count:
        e, f, g, h = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        a, b, c, d = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for n in range(width):
            table[row, n] += a * source[e, n] + b * source[f, n] + c * source[g, n] + d * source[h, n]
        k += 4
    while k + 2 <= count:
        e, f = rows[k], rows[k + 1]
        a, b = weights[k], weights[k + 1]
        for n in range(width):
            table[row, n] += a * source[e, n] + b * source[f, n]
        k += 2
    if k < count:
        e, a = rows[k], weights[k]
        for n in range(width):
            table[row, n] += a * source[e, n]


@compiled
def mean_rows(table, rows, count, mean, width):
    """mean[0] = the mean of table[rows]."""
    for n in range(width):
        mean[0, n] = np.float32(0)
    at = 0
    while at + 4 <= count:
        p, q, r, s = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
        for n in range(width):
            mean[0, n] += table[p, n] + table[q, n] + table[r, n] + table[s, n]
        at += 4
    while at < count:
        p = rows[at]
        for n in range(width):
            mean[0, n] += table[p, n]
        at += 1
    share = np.float32(1) / np.float32(count)
    for n in range(width):
        mean[0, n] *= share


@compiled
def add_row(table, rows, count, added, width):
    """table[r] += added[0] for each r of rows, as often as it stands there."""
    for at in range(count):
        row = rows[at]
        for n in range(width):
            table[row, n] += added[0, n]


@compiled
def sigmoid(x):
    """1 / (1 + e^-x) to float32, from 1e-8 to 1 - 1e-8: tanh(x / 2) as a quotient of polynomials, without branches or
    tables, so that several are computed at once."""
    y = np.float32(0.5) * x
    y = min(max(y, np.float32(-9)), np.float32(9))
    z = y * y
    over = np.float32(-2.76076847742355e-16)
    over = over * z + np.float32(2.00018790482477e-13)
    over = over * z + np.float32(-8.60467152213735e-11)
    over = over * z + np.float32(5.12229709037114e-08)
    over = over * z + np.float32(1.48572235717979e-05)
    over = over * z + np.float32(6.37261928875436e-04)
    over = over * z + np.float32(4.89352455891786e-03)
    under = np.float32(1.19825839466702e-06)
    under = under * z + np.float32(1.18534705686654e-04)
    under = under * z + np.float32(2.26843463243900e-03)
    under = under * z + np.float32(4.89352518554385e-03)
    return np.float32(0.5) + np.float32(0.5) * (y * over / under)


@compiled
def add_loss(scores, at, labels, count):
    """The loss of one row of products: - sum of log sigmoid(x) where the label is 1, of log sigmoid(-x) where 0."""
    chance = 1.0
    for k in range(count):
        p = np.float64(sigmoid(scores[at, k]))
        chance *= p if labels[k] > 0 else 1.0 - p
    return -np.log(max(chance, 1e-300))


@compiled
def to_gradients(scores, at, labels, width, rate):
    """Products become steps against the gradient: (label - sigmoid(x)) * rate."""
    for k in range(width):
        scores[at, k] = (labels[k] - sigmoid(scores[at, k])) * rate
