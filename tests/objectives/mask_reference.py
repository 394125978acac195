"""The masking algorithms once more, one example at a time in plain Python, to compare statistics with.

Each takes an example as its words' sizes (one piece) and returns the chosen tokens, in the shape of the words.
"""

import math
import random


def whole_words(words: list[int], budget: int, rng: random.Random) -> list[list[bool]]:
    """Words in random order; too large a one is passed over."""
    chosen = [[False] * size for size in words]
    left = budget
    for word in rng.sample(range(len(words)), len(words)):
        if left == 0:
            break
        if words[word] <= left:
            chosen[word] = [True] * words[word]
            left -= words[word]
    return chosen


def ngrams(words: list[int], budget: int, longest: int, rng: random.Random) -> list[list[bool]]:
    """Starts in random order; shrink until it fits; no overlap."""
    chosen = [[False] * size for size in words]
    weights = [1 / n for n in range(1, longest + 1)]
    left = budget
    for start in rng.sample(range(len(words)), len(words)):
        if left == 0:
            break
        (n,) = rng.choices(range(1, longest + 1), weights)
        n = min(n, len(words) - start)
        while n and sum(words[start : start + n]) > left:
            n -= 1
        run = range(start, start + n)
        if n and not any(chosen[word][0] for word in run):
            for word in run:
                chosen[word] = [True] * words[word]
                left -= words[word]
    return chosen


def spans(words: list[int], rate: float, ending: float, longest: int, rng: random.Random) -> list[list[bool]]:
    """Geometric numbers of words from the word of a random token on, until the budget is met."""
    owner = [word for word, size in enumerate(words) for _ in range(size)]
    begin = [sum(words[:word]) for word in range(len(words) + 1)]
    budget = math.ceil(rate * len(owner))
    weights = [ending * (1 - ending) ** (length - 1) for length in range(1, longest + 1)]
    masked: set[int] = set()
    while len(masked) < budget:
        (length,) = rng.choices(range(1, longest + 1), weights)
        anchor = rng.randrange(len(owner))
        if anchor in masked:
            continue
        first = owner[anchor]
        for token in range(begin[first], begin[min(first + length, len(words))]):
            if len(masked) < budget:
                masked.add(token)
    return [[token in masked for token in range(begin[word], begin[word + 1])] for word in range(len(words))]
