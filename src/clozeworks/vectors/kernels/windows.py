"""One pass over some sentences, skip-gram or CBOW, against drawn words or the nodes of a tree.

Paper: Mikolov et al. 2013. The word at a place is predicted from the words around it (skip-gram: from each of them by
itself; CBOW: from their mean):

    drawn words   -log s(u_w h) - sum over n of log s(-u_n h)
    tree          -sum over the way to w of log s((1 - 2 bit) u h)

with s the logistic function, h an input row, u output rows. Windows have a radius from 1 to `window`, each as likely;
frequent words are passed over before windows are placed; a draw that is the word itself is left out. CBOW adds the
gradient in full to each word of the window, as the authors' program does.

Departures: the step of a window is taken at once for all its pairs, and `shared` draws the noise once for a window, not
for each pair, so that the rows of the drawn words are loaded once. The logistic function is computed, not looked up,
and no pair is left out because it is learnt already. Without `shared` each pair has its own draws and its own step.
"""

import numpy as np

from clozeworks.nn.kernels.compiled import compiled
from clozeworks.vectors.kernels.arithmetic import add_loss, add_row, add_rows, mean_rows, products, to_gradients

LONGEST = 10_000  # words of a sentence that windows are placed over together
LOSS_EVERY = 8  # places; the loss of the others is not computed
LANES = 8  # products of a row are padded to it

_12, _25, _27, _32 = np.uint64(12), np.uint64(25), np.uint64(27), np.uint64(32)
_STAR, _LOW = np.uint64(2685821657736338717), np.uint64(0xFFFFFFFF)


@compiled
def advance(state):
    """The next state of xorshift64*; none is 0."""
    state ^= state >> _12
    state ^= state << _25
    state ^= state >> _27
    return state


@compiled
def below(state, limit):
    """A number from 0 to limit - 1, of the upper bits."""
    return np.int64((((state * _STAR) >> _32) * limit) >> _32)


@compiled
def drawn(state, thresholds, aliases, size):
    """A word of the noise."""
    bits = state * _STAR
    slot = np.int64(((bits >> _32) * size) >> _32)
    return slot if np.uint32(bits & _LOW) <= thresholds[slot] else np.int64(aliases[slot])


@compiled
def thinned(ids, begin, end, keep, state, kept):
    """The words of ids[begin:end] that are kept, into `kept`: how many, and the generator's state."""
    count = 0
    for at in range(begin, end):
        word = ids[at]
        state = advance(state)
        if np.uint64(keep[word]) >= (state * _STAR) >> _32:
            kept[count] = word
            count += 1
    return count, state


@compiled
def window_of(kept, count, at, radius, around):
    """The words around a place, without it: how many."""
    size = 0
    for other in range(max(0, at - radius), min(count, at + radius + 1)):
        if other != at:
            around[size] = kept[other]
            size += 1
    return size


@compiled
def noise_for(word, negative, thresholds, aliases, state, targets):
    """The word and the words drawn against it: how many, and the generator's state."""
    size = np.uint64(len(thresholds))
    count = 1
    targets[0] = word
    for _ in range(negative):
        state = advance(state)
        other = drawn(state, thresholds, aliases, size)
        if other != word:
            targets[count] = other
            count += 1
    return count, state


@compiled
def way_to(word, starts, points, bits, targets, labels):
    """The nodes on the way to a word, and what each is to say: how many."""
    begin = starts[word]
    count = starts[word + 1] - begin
    for k in range(count):
        targets[k] = points[begin + k]
        labels[k] = np.float32(1) - np.float32(bits[begin + k])
    return count


@compiled
def step(inputs, rows, count, outputs, targets, labels, amount, held, each, scores, rate, due):
    """One step of a group: `count` input rows against `amount` target rows; its loss if that is to be measured.

    Both sides change by what the other was before, so the targets are copied into `held`, whose rows are 0, 1, ...
    """
    width = outputs.shape[1]
    for k in range(amount):
        row = targets[k]
        for n in range(width):
            held[k, n] = outputs[row, n]
    loss = 0.0
    for at in range(count):
        products(inputs, rows[at], held, each, amount, scores, at, width)
        if due:
            loss += add_loss(scores, at, labels, amount)
        to_gradients(scores, at, labels, scores.shape[1], rate)
    for k in range(amount):
        add_rows(outputs, targets[k], inputs, rows, count, scores[:, k], width)
    for at in range(count):
        add_rows(inputs, rows[at], held, each, amount, scores[at], width)
    return loss


@compiled
def bag_step(inputs, rows, count, outputs, targets, labels, amount, mean, error, one, scores, rate, due):
    """One step of the mean of `count` input rows against `amount` target rows; its loss if that is to be measured.

    The gradient of the mean is gathered aside, so the targets are read where they are.
    """
    width = outputs.shape[1]
    mean_rows(inputs, rows, count, mean, width)
    products(mean, 0, outputs, targets, amount, scores, 0, width)
    loss = add_loss(scores, 0, labels, amount) if due else 0.0
    to_gradients(scores, 0, labels, scores.shape[1], rate)
    for n in range(width):
        error[0, n] = np.float32(0)
    add_rows(error, 0, outputs, targets, amount, scores[0], width)
    for k in range(amount):
        add_rows(outputs, targets[k], mean, one, 1, scores[:, k], width)
    add_row(inputs, rows, count, error, width)
    return loss


@compiled
def train(ids, ends, first, last, inputs, outputs, keep, noise, tree, window, negative, bags, shared, rate, seed):
    """Sentences `first` to `last`, in place: the sum of losses, of how many groups, and the places predicted.

    noise: thresholds, aliases. tree: starts, points, bits, the longest way; negative = 0 chooses it. bags: CBOW.
    """
    width = inputs.shape[1]
    starts, points, bits, longest = tree
    most = longest if negative == 0 else negative + 1
    lanes = (most + LANES - 1) // LANES * LANES
    held, scores = np.zeros((most, width), np.float32), np.zeros((2 * window, lanes), np.float32)
    each = np.arange(most)
    targets, labels = np.zeros(most, np.int64), np.zeros(lanes, np.float32)
    labels[0] = np.float32(1)
    kept, around, one = np.empty(LONGEST, np.int32), np.empty(2 * window, np.int64), np.zeros(1, np.int64)
    mean, error = np.zeros((1, width), np.float32), np.zeros((1, width), np.float32)
    state, radii = seed, np.uint64(window)
    alone = not (shared or bags or negative == 0)
    loss, measured, places = 0.0, 0, 0
    for sentence in range(first, last):
        begin, end = ends[sentence - 1] if sentence else 0, ends[sentence]
        while begin < end:
            stop = min(end, begin + LONGEST)
            words, state = thinned(ids, begin, stop, keep, state, kept)
            begin = stop
            for at in range(words):
                state = advance(state)
                size = window_of(kept, words, at, 1 + below(state, radii), around)
                if size == 0:
                    continue
                places += 1
                due = places % LOSS_EVERY == 0
                word = np.int64(kept[at])
                for group in range(size if alone else 1):
                    if negative == 0:
                        amount = way_to(word, starts, points, bits, targets, labels)
                    else:
                        amount, state = noise_for(word, negative, noise[0], noise[1], state, targets)
                    if bags:
                        loss += bag_step(
                            inputs, around, size, outputs, targets, labels, amount, mean, error, one, scores, rate, due
                        )
                        measured += due
                        continue
                    rows, count = (around[group : group + 1], 1) if alone else (around, size)
                    loss += step(inputs, rows, count, outputs, targets, labels, amount, held, each, scores, rate, due)
                    measured += count * due
    return loss, measured, places


@compiled
def train_parts(ids, ends, first, last, inputs, outputs, keep, noise, parts, window, negative, bags, rate, seed):
    """As `train`, with words that are means of rows; parts: starts, rows, the most rows of a word.

    Skip-gram goes from the word to those around it here, so that its mean is taken once; each pair has its own draws.
    """
    width = inputs.shape[1]
    starts, pieces, longest = parts
    most = negative + 1 if bags else 2 * window * (negative + 1)
    lanes = (most + LANES - 1) // LANES * LANES
    scores = np.zeros((1, lanes), np.float32)
    targets, labels = np.zeros(most, np.int64), np.zeros(lanes, np.float32)
    kept, around, one = np.empty(LONGEST, np.int32), np.empty(2 * window, np.int64), np.zeros(1, np.int64)
    rows = np.empty(longest * (2 * window if bags else 1), np.int64)
    mean, error = np.zeros((1, width), np.float32), np.zeros((1, width), np.float32)
    state, radii = seed, np.uint64(window)
    loss, measured, places = 0.0, 0, 0
    for sentence in range(first, last):
        begin, end = ends[sentence - 1] if sentence else 0, ends[sentence]
        while begin < end:
            stop = min(end, begin + LONGEST)
            words, state = thinned(ids, begin, stop, keep, state, kept)
            begin = stop
            for at in range(words):
                state = advance(state)
                size = window_of(kept, words, at, 1 + below(state, radii), around)
                if size == 0:
                    continue
                places += 1
                word, count, amount = np.int64(kept[at]), 0, 0
                for k in range(lanes):
                    labels[k] = np.float32(0)
                for other in range(size if bags else 1):
                    source = around[other] if bags else word
                    for piece in range(starts[source], starts[source + 1]):
                        rows[count] = pieces[piece]
                        count += 1
                for other in range(1 if bags else size):
                    labels[amount] = np.float32(1)
                    goal = word if bags else around[other]
                    drawn_now, state = noise_for(goal, negative, noise[0], noise[1], state, targets[amount:])
                    amount += drawn_now
                due = places % LOSS_EVERY == 0
                loss += bag_step(
                    inputs, rows, count, outputs, targets, labels, amount, mean, error, one, scores, rate, due
                )
                measured += (1 if bags else size) * due
    return loss, measured, places
