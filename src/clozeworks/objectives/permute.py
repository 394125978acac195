"""Predict some tokens in a random order, each from the text around them and from those predicted before it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count
from clozeworks.core.examples import NOTHING, RaggedBatch, Vocabulary, ragged_arange
from clozeworks.core.token_info import Kind
from clozeworks.objectives.mask.fit import fit
from clozeworks.objectives.mask.masking import ordinary
from clozeworks.objectives.mask.order import shuffled
from clozeworks.objectives.mask.units import Units, joined, words
from clozeworks.objectives.objective import Corruption

LOW = np.uint64(0xFFFFFFFF)


@dataclass(slots=True)
class Permute(Corruption):
    """Permutation language modelling: E_z sum_t log p(x_z(t) | x_z(<t)) over the last n / `context` of an order z of
    n tokens (Yang et al. 2019, 2.2 and 2.3).

    No token is replaced. What a target may know is said by the column `order`: a token sees those of its example whose
    number is not above its own, and a stack with two streams predicts a target from the numbers below its own. Tokens
    that are neither targets nor special have the smallest number: all see them, and they see each other alone. Targets
    and specials have the numbers of a random order, each its own. Specials are never targets.

    Targets: round(n / context) tokens, specials counted in n, at least one: 85 of 512. The text is cut into stretches
    of m * context words, p(m) = (1 / m) / (1 / 1 + ... + 1 / longest) on 1 .. `longest`: .438 .219 .146 .109 .088,
    2.19 in the mean. In each a span of m words lies anywhere, up to the end of its piece at most; what is above the
    number is cut off at the end, what is missing is filled up with single tokens.

    Where the segments say how many tokens of an example come again in the next one's past (the field `reused`), these
    and the others are two parts, each with its own share of the targets and its own order: the first part never sees
    the second, which sees all of the first. `block` orders that many neighbouring tokens of a part at a time, all
    blocks in the same way, each after the one before it; None: the whole part.

    Departures: a span is m words where the released code, asking whether its first piece begins a word when it means
    the next one, always takes m pieces; and it lies within its stretch, as in the paper, where the code puts stretch
    and span one after another, so that spans reach one token in seven and singles do the rest. Any length will do.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"labels", "order"})
    kind: ClassVar[Kind] = "order"
    hides: ClassVar[Literal["replacing", "time", "two streams"]] = "two streams"
    context: Count = 6
    longest: Count = 5
    block: Count | None = None

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        parts, own = apart(examples, keys)
        target = self.choose(parts, self.budget(examples, parts), own)
        labels = np.where(target, examples.tokens, np.int32(NOTHING))
        return replace(examples, labels=labels, order=self.order(parts, target, own, len(parts) > len(examples)))

    def budget(self, examples: RaggedBatch, parts: RaggedBatch) -> np.ndarray:
        """[parts]: how many targets; of two parts the first has its share of them rounded up."""
        count = np.maximum(np.rint(examples.lengths / self.context), 1).astype(np.int64)
        there = ordinary(parts)
        if len(parts) == len(examples):
            return np.minimum(count, there)
        share = -(-count * parts.lengths[::2] // np.maximum(examples.lengths, 1))
        second = np.minimum(count - np.minimum(share, there[::2]), there[1::2])
        return np.stack([np.minimum(count - second, there[::2]), second], axis=1).ravel()

    def choose(self, parts: RaggedBatch, budget: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """[tokens] bool: the targets."""
        units = words(parts)
        begin, end = self.spans(units, joined(units, parts.segment), keys)
        size = np.append(0, np.cumsum(units.sizes))
        size = size[end] - size[begin]
        tokens = ragged_arange(units.at[begin], size)
        part = np.repeat(np.searchsorted(units.first, begin, side="right") - 1, size)
        sizes = np.bincount(part, minlength=len(parts))
        number = np.arange(len(tokens)) - (np.cumsum(sizes) - sizes)[part]
        target = np.zeros(len(parts.tokens), dtype=bool)
        target[tokens[number < budget[part]]] = True

        free = np.flatnonzero(~(target | parts.special))
        rest = Units(free, None, np.searchsorted(free, parts.first))
        singles, _ = fit(rest, shuffled(rest.counts, counter_rng.fold(keys, "fill")), np.maximum(budget - sizes, 0))
        target[free[singles]] = True
        return target

    def spans(self, units: Units, after: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First word of each span and the word behind its last, in the order of the text."""
        many = int(units.counts.max(initial=0)) // self.context + 1  # stretches: none has fewer words than `context`
        bits = counter_rng.bits(counter_rng.fold(keys, "spans")[:, None], np.arange(many))
        size = self.sizes(bits >> np.uint64(32))
        room = size * self.context
        inside = ((bits & LOW) * (room - size + 1).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        begin = np.cumsum(room, axis=1) - room + inside
        fits = begin + size <= units.counts[:, None]
        begin, size = (begin + units.first[:-1, None])[fits], size[fits]
        piece_ends = np.flatnonzero(~after) + 1
        return begin, np.minimum(begin + size, piece_ends[np.searchsorted(piece_ends, begin, side="right")])

    def sizes(self, random: np.ndarray) -> np.ndarray:
        """Words of a span, from 32 random bits."""
        chances = np.cumsum(1 / np.arange(1, self.longest + 1))
        return np.searchsorted(chances / chances[-1], random * 2.0**-32, side="right") + 1

    def order(self, parts: RaggedBatch, target: np.ndarray, keys: np.ndarray, in_two: bool) -> np.ndarray:
        at = np.flatnonzero(target | parts.special)
        part = np.searchsorted(parts.first, at, side="right") - 1
        place = at - parts.first[part]
        block, within = (np.zeros_like(place), place) if self.block is None else np.divmod(place, self.block)
        turn = np.lexsort((counter_rng.bits(counter_rng.fold(keys, "order")[part], within), block, part))
        ranked = np.bincount(part, minlength=len(parts))
        order = np.zeros(len(target), dtype=np.int32)
        order[at[turn]] = np.arange(len(at)) - (np.cumsum(ranked) - ranked)[part] + 1
        if in_two:
            before = np.zeros(len(parts), dtype=np.int32)
            before[1::2] = ranked[::2] + 1
            order += np.repeat(before, parts.lengths)
        return order


def apart(examples: RaggedBatch, keys: np.ndarray) -> tuple[RaggedBatch, np.ndarray]:
    """The examples cut in two behind their reused tokens, each half with a key of its own; else as they are."""
    reused = examples.fields.get("reused")
    if reused is None:
        return examples, keys
    begin = examples.first[:-1]
    cut = np.stack([begin, begin + np.minimum(reused, examples.lengths)], axis=1)
    first = np.append(cut.ravel(), examples.first[-1])
    return replace(examples, first=first), counter_rng.fold(np.repeat(keys, 2), np.tile([0, 1], len(examples)))
