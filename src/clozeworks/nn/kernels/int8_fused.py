"""What stands around a product of int8 matrices, each as one pass over rows that are still in the cache.

quantize          x -> int8 with a scale for each row
dequantize        int32 -> fp32, with the bias
gelu_quantize     int32 -> int8: dequantize, bias, activation, quantize
attend            int32 of query, key and value -> int8: dequantize, bias, attention within documents, quantize

Done by torch, one operation after the other, they take longer than the products (docs/int8.md).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import Chebyshev

from clozeworks.nn.kernels.compiled import compiled, inlined
from clozeworks.nn.kernels.simd import make_product, transpose

_F = np.float32
ZERO, HALF, ONE, MOST, STEP = _F(0), _F(0.5), _F(1), _F(127), _F(1 / 127)
MAGNITUDE = np.int32(0x7FFFFFFF)  # of the bits of a float all but its sign: they are in order of size
LOG2_E, LEAST = _F(math.log2(math.e)), _F(-120)
REACH = 5.0  # beyond it GELU is x or 0, to 2e-6


def _fit(function: Callable[[np.ndarray], np.ndarray], degree: int, domain: tuple[float, float]) -> list[np.float32]:
    """Coefficients of the polynomial through the Chebyshev nodes of a domain."""
    polynomial = Chebyshev.interpolate(function, degree, list(domain)).convert(kind=Polynomial)
    return [_F(value) for value in polynomial.coef]


def _gelu_factor(s: np.ndarray) -> np.ndarray:
    """(Phi(x) - 1/2) / x, an even function, of s = 2 x^2 / REACH^2 - 1."""
    x = np.sqrt(np.maximum((s + 1) * REACH**2 / 2, 1e-12))
    return np.array([math.erf(value / math.sqrt(2)) / (2 * value) for value in x])


SQUARE = _F(2 / REACH**2)
FAR = _F(REACH)
P0, P1, P2, P3, P4, P5 = _fit(lambda x: 2.0**x, 5, (-0.5, 0.5))
G0, G1, G2, G3, G4, G5, G6, G7, G8, G9, G10, G11, G12, G13 = _fit(_gelu_factor, 13, (-1, 1))

product_two, product_one = make_product(4, 2), make_product(4, 1)


@inlined
def exp(x):
    """e^x for x <= 0, to 2e-6 of it."""
    y = max(x * LOG2_E, LEAST)
    whole = np.rint(y)
    f = y - whole
    part = P0 + f * (P1 + f * (P2 + f * (P3 + f * (P4 + f * P5))))
    return part * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def gelu(x):
    """x Phi(x), to 5e-6."""
    y = min(max(x, -FAR), FAR)
    s = y * y * SQUARE - ONE
    p = G6 + s * (G7 + s * (G8 + s * (G9 + s * (G10 + s * (G11 + s * (G12 + s * G13))))))
    p = G0 + s * (G1 + s * (G2 + s * (G3 + s * (G4 + s * (G5 + s * p)))))
    return x * (HALF + y * p)


@inlined
def _quantize_row(row, quantized, scales, at):
    most = np.int32(0)
    for j in range(row.shape[0]):
        most = max(most, np.float32(row[j]).view(np.int32) & MAGNITUDE)
    largest = np.int32(most).view(np.float32)
    scales[at] = largest * STEP if most else ONE
    inverse = MOST / largest if most else ZERO
    for j in range(row.shape[0]):
        quantized[j] = np.int8(np.int32(np.rint(row[j] * inverse)))


@compiled
def quantize(x, quantized, scales):
    """x [n, D] fp32 -> quantized [n, D] int8, scales [n]."""
    for i in range(x.shape[0]):
        _quantize_row(x[i], quantized[i], scales, i)


@compiled
def dequantize(sums, scales, weights, bias, out):
    """sums [n, D] int32, scales [n] of rows, weights [D] of columns, bias [D] -> out [n, D]."""
    for i in range(sums.shape[0]):
        row, target, scale = sums[i], out[i], scales[i]
        for j in range(row.shape[0]):
            target[j] = np.float32(row[j]) * (scale * weights[j]) + bias[j]


@compiled
def gelu_quantize(sums, scales, weights, bias, quantized, next_scales):
    """sums [n, D] int32 -> quantized [n, D] int8, next_scales [n]."""
    buffer = np.empty(sums.shape[1], np.float32)
    for i in range(sums.shape[0]):
        row, scale = sums[i], scales[i]
        for j in range(row.shape[0]):
            buffer[j] = gelu(np.float32(row[j]) * (scale * weights[j]) + bias[j])
        _quantize_row(buffer, quantized[i], next_scales, i)


@inlined
def _dequantize_head(sums, scales, weights, bias, begin, size, out, stride, factor):
    """The columns begin : begin + size of some rows, times a factor, to a flat buffer."""
    own, added = weights[begin : begin + size], bias[begin : begin + size]
    for i in range(sums.shape[0]):
        row, target, scale = sums[i, begin : begin + size], out[i * stride : i * stride + size], scales[i]
        for c in range(size):  # from 0 on: an index that might be negative is no vector
            target[c] = (np.float32(row[c]) * (scale * own[c]) + added[c]) * factor


@inlined
def _softmax_row(scores):
    """e^(score - the largest), in place, and one over their sum."""
    a, b, c, d = scores[0], scores[0], scores[0], scores[0]  # four maxima at a time: one would wait for itself
    for j in range(scores.shape[0] // 4):
        a, b = max(a, scores[4 * j]), max(b, scores[4 * j + 1])
        c, d = max(c, scores[4 * j + 2]), max(d, scores[4 * j + 3])
    for j in range(scores.shape[0] // 4 * 4, scores.shape[0]):
        a = max(a, scores[j])
    largest, total = max(max(a, b), max(c, d)), ZERO
    for j in range(scores.shape[0]):
        weight = exp(scores[j] - largest)
        scores[j] = weight
        total += weight
    return ONE / total


@compiled
def attend(scales, query, query_weights, query_bias, key, key_weights, key_bias, value, value_weights, value_bias,
           starts, lengths, heads, quantized, next_scales):  # fmt: skip
    """int32 [n, D] of query, key and value, with the scales of rows [n] and of columns [D] and a bias [D] -> what each
    token of a document mixes of it, quantized [n, D] int8 with next_scales [n].

    Head by head: key is transposed, so that four queries meet sixteen keys in one instruction; the weights of four
    queries are all that is in memory of the scores.
    """
    width = query.shape[1]
    size = width // heads
    longest = (max(lengths) + 15) // 16 * 16
    room = (size + 15) // 16 * 16
    q, k, v = np.zeros(longest * room, _F), np.zeros(longest * room, _F), np.zeros(longest * room, _F)
    keys = np.zeros(room * longest, _F)
    scores, mixed = np.zeros(4 * longest, _F), np.zeros(4 * room, _F)
    shares = np.empty(4, _F)  # one over the sum of the weights of each query
    out = np.empty((longest, width), _F)
    factor = _F(1 / math.sqrt(size))
    for n in range(lengths.shape[0]):
        first, length = starts[n], lengths[n]
        padded, own = (length + 15) // 16 * 16, slice(first, first + length)
        for head in range(heads):
            at = head * size
            _dequantize_head(query[own], scales[own], query_weights, query_bias, at, size, q, room, factor)
            _dequantize_head(key[own], scales[own], key_weights, key_bias, at, size, k, room, ONE)
            _dequantize_head(value[own], scales[own], value_weights, value_bias, at, size, v, room, ONE)
            for j in range(0, padded, 16):
                for c in range(0, room, 16):
                    transpose(k, j * room + c, room, keys, c * longest + j, longest)  # pyright: ignore[reportCallIssue]
            for i in range(0, length, 4):
                j = 0
                while j + 32 <= padded:
                    product_two(q, i * room, room, keys, j, longest, scores, j, longest, size)
                    j += 32
                if j < padded:
                    product_one(q, i * room, room, keys, j, longest, scores, j, longest, size)
                rows = min(4, length - i)
                for r in range(rows):
                    shares[r] = _softmax_row(scores[r * longest : r * longest + length])
                c = 0
                while c + 32 <= room:
                    product_two(scores, 0, longest, v, c, room, mixed, c, room, length)
                    c += 32
                if c < room:
                    product_one(scores, 0, longest, v, c, room, mixed, c, room, length)
                for r in range(rows):
                    target, row = out[i + r, at : at + size], mixed[r * room : r * room + size]
                    for c in range(size):
                        target[c] = row[c] * shares[r]
        for i in range(length):
            _quantize_row(out[i], quantized[first + i], next_scales, first + i)
