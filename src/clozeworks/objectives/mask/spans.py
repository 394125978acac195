"""Hide spans of whole words of geometric length."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count, Part
from clozeworks.core.examples import RaggedBatch, Vocabulary, ragged_arange
from clozeworks.objectives.mask.masking import Chosen, Masking, Rounding, hide, run_starts
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.units import Units, joined, words

AHEAD = 8  # proposals prepared together


@dataclass(slots=True)
class MaskSpans(Masking):
    """Spans of whole words; those that touch become one, masked, random or kept as a whole (Joshi et al. 2019, 3.1).

    A span has l words, p(l) = ending * (1 - ending)**(l - 1) on 1 .. `longest`, renormalised: 3.797 words in the mean
    with 0.2 and 10 (lengths cut at 10 would give 4.463). Its anchor is uniform over the tokens not yet chosen; the span
    begins where the anchor's word does and goes to the right, over words already chosen too, to the end of its piece at
    most. It stops where the budget is met, even within a word: the last span of an example may be cut.
    The column `span` numbers the spans of an example from left to right, 0, 1, ..., and is -1 outside. Unlike the
    published code, which sees one block without specials, a span never reaches over a [SEP].
    """

    writes: ClassVar[frozenset[str]] = frozenset({"labels", "spans"})
    rounding: Rounding = "up"
    replace: Replace = field(default_factory=lambda: Replace(source="corpus", per="span"))
    ending: Part = 0.2
    longest: Count = 10

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        chosen = self.choose(examples, keys)
        starts = run_starts(examples, *chosen)
        number = np.cumsum(starts) - 1
        before = np.zeros(len(examples), dtype=np.int64)  # spans of the examples before
        before[1:] = np.cumsum(np.bincount(chosen.rows[starts], minlength=len(examples)))[:-1]
        span = np.full(len(examples.tokens), -1, dtype=np.int32)
        span[chosen.tokens] = number - before[chosen.rows]
        return replace(hide(examples, chosen, keys, self.replace, vocabulary), span=span)

    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        """Ascending."""
        units = words(examples)
        tokens = np.flatnonzero(~examples.special)
        begin = np.append(0, np.cumsum(units.sizes))  # a unit's first token, counted without the specials
        first = begin[units.first]
        budget = self.budget(examples, keys, np.diff(first))
        masked = self._cover(units, joined(units, examples.segment), begin, budget, counter_rng.fold(keys, "choose"))
        taken = np.flatnonzero(masked)
        return Chosen(tokens[taken], np.searchsorted(first, taken, side="right") - 1)

    def _cover(
        self, units: Units, after: np.ndarray, begin: np.ndarray, budget: np.ndarray, site: np.ndarray
    ) -> np.ndarray:
        """[tokens without the specials] bool: chosen. One proposal of every example at a time."""
        word = np.repeat(np.arange(len(units.at)), units.sizes)
        piece_ends = np.flatnonzero(~after) + 1
        first, available = begin[units.first[:-1]], np.diff(begin[units.first])
        masked = np.zeros(begin[-1], dtype=bool)
        left = budget.copy()
        counter = 0
        while len(rows := np.flatnonzero(left)):
            bits = counter_rng.bits(site[rows], np.arange(counter, counter + AHEAD)[:, None])  # [proposals, rows]
            chance = (bits >> np.uint64(32)) * available[rows].astype(np.uint64) >> np.uint64(32)
            anchors = first[rows] + chance.astype(np.int64)
            starts = word[anchors]
            ends = piece_ends[np.searchsorted(piece_ends, starts, side="right")]
            ends = begin[np.minimum(starts + self.lengths(bits & np.uint64(0xFFFFFFFF)), ends)]
            starts, room = begin[starts], left[rows]
            for anchor, start, end in zip(anchors, starts, ends, strict=True):
                live = np.flatnonzero(~masked[anchor] & (room > 0))
                if not len(live):
                    continue
                length = (end - start)[live]
                at = ragged_arange(start[live], length)
                new = ~masked[at]
                total = new.cumsum()
                behind = length.cumsum()
                before = total[behind - length] - new[behind - length]
                limit = np.minimum(total[behind - 1], before + room[live])
                new &= total <= limit.repeat(length)
                masked[at[new]] = True
                room[live] += before - limit
            left[rows] = room
            counter += AHEAD
        return masked

    def lengths(self, random: np.ndarray) -> np.ndarray:
        """Words of a span, from 32 random bits."""
        chances = np.cumsum((1 - self.ending) ** np.arange(self.longest))
        return np.searchsorted(chances / chances[-1], random * 2.0**-32, side="right") + 1
