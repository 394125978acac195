"""Kernels: pairs of words near each other are counted, and vectors are fitted to the counts."""

import math

import numpy as np

from clozeworks.nn.kernels.compiled import compiled

EMPTY = -1  # a slot without a key


@compiled
def count_pairs(ids, ends, at, sentence, weights, both, vocab, dense, starts, widths, keys, values, free):
    """Add up the weights of pairs, word by word from `at` in `sentence`, while the table has room for one word more.

    Cell starts[a] + b of `dense` is pair (a, b) where b < widths[a]; others are found in `keys` by a * vocab + b. Where
    `both`, a pair is counted once with the lower word first, and a word beside itself twice. Gives back where it
    stopped and how many slots are free.
    """
    mask, window = len(keys) - 1, len(weights) - 1
    begin = ends[sentence - 1] if sentence else 0
    while sentence < len(ends):
        end = ends[sentence]
        while at < end:
            if free <= window:
                return at, sentence, free
            right = ids[at]
            for distance in range(1, min(window, at - begin) + 1):
                a, b, weight = ids[at - distance], right, weights[distance]
                if both:
                    if a > b:
                        a, b = b, a
                    elif a == b:
                        weight += weight
                if b < widths[a]:
                    dense[starts[a] + b] += weight
                    continue
                key = np.int64(a) * vocab + b
                slot = np.int64((np.uint64(key) * np.uint64(11400714819323198485)) >> np.uint64(20)) & mask
                while keys[slot] != key:
                    if keys[slot] == EMPTY:
                        keys[slot] = key
                        free -= 1
                        break
                    slot = (slot + 1) & mask
                values[slot] += weight
            at += 1
        begin = end
        sentence += 1
    return at, sentence, free


@compiled
def _fit(i, j, target, weight, words, contexts, word_squares, context_squares, dim, rate, clip):
    """One pair; rows are D numbers and a bias. Gives back f(x) (w_i . w~_j + b_i + b~_j - log x)**2 / 2."""
    w, c = np.uint64(i) * np.uint64(dim + 1), np.uint64(j) * np.uint64(dim + 1)
    off = words[w + np.uint64(dim)] + contexts[c + np.uint64(dim)] - target
    for k in range(dim):
        off += words[w + np.uint64(k)] * contexts[c + np.uint64(k)]
    step = weight * off
    if not abs(step) < 1e30:  # not a number, or soon none: this pair moves nothing
        return math.nan
    for k in range(dim):
        d = np.uint64(k)
        x, y = words[w + d], contexts[c + d]
        one = min(max(step * y, -clip), clip) * rate
        two = min(max(step * x, -clip), clip) * rate
        words[w + d] = x - one / math.sqrt(word_squares[w + d])
        contexts[c + d] = y - two / math.sqrt(context_squares[c + d])
        word_squares[w + d] += one * one
        context_squares[c + d] += two * two
    d = np.uint64(dim)
    words[w + d] -= step / math.sqrt(word_squares[w + d])
    contexts[c + d] -= step / math.sqrt(context_squares[c + d])
    word_squares[w + d] += step * step
    context_squares[c + d] += step * step
    return 0.5 * step * off


@compiled
def fit_pairs(
    first, second, counts, both, words, contexts, word_squares, context_squares, dim, rate, clip, most, power
):
    """Pairs in the order they are given; where `both`, each the other way round, too. Gives back the sum of losses."""
    loss = 0.0
    for n in range(len(first)):
        i, j, x = first[n], second[n], counts[n]
        target = math.log(x)
        weight = (x / most) ** power if x < most else x / x
        loss += _fit(i, j, target, weight, words, contexts, word_squares, context_squares, dim, rate, clip)
        if both and i != j:
            loss += _fit(j, i, target, weight, words, contexts, word_squares, context_squares, dim, rate, clip)
    return loss
